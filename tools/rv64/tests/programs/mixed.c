// SPDX-License-Identifier: GPL-2.0
/*
 * A program of everyday C, compiled twice: for the hart under test and for the host, whose output
 * is the expected one. It writes what it computes to out[] and returns how many values those are.
 */

typedef unsigned long u64;
typedef unsigned int u32;

#define LENGTH 256

static u64 state;

/* xorshift64*: the input of everything below. */
static u64 next(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dUL;
}

static void sort(long *v, long low, long high)
{
	long i = low, j = high, pivot = v[low + (high - low) / 2];

	while (i <= j) {
		while (v[i] < pivot)
			i++;
		while (v[j] > pivot)
			j--;
		if (i <= j) {
			long t = v[i];

			v[i++] = v[j];
			v[j--] = t;
		}
	}
	if (low < j)
		sort(v, low, j);
	if (i < high)
		sort(v, i, high);
}

static u32 crc32(const unsigned char *p, u64 n)
{
	u32 crc = ~0u;

	while (n--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static u64 bits_of(double x)
{
	union {
		double x;
		u64 bits;
	} u = { x };

	return u.bits;
}

static u64 bits_of_single(float x)
{
	union {
		float x;
		u32 bits;
	} u = { x };

	return u.bits;
}

/* Signed and unsigned, 32 and 64 bits, with operands that meet the edges; never undefined. */
static u64 arithmetic(u64 *out)
{
	u64 n = 0;

	for (int i = 0; i < LENGTH; i++) {
		u64 a = next() >> (next() & 63), b = next() >> (next() & 63);
		long sa = (long)a, sb = (long)b;
		int wa = (int)a, wb = (int)b;

		out[n++] = b ? a / b : 0;
		out[n++] = b ? a % b : 0;
		out[n++] = sb && sb != -1 ? sa / sb : 0;
		out[n++] = sb && sb != -1 ? sa % sb : 0;
		out[n++] = wb && wb != -1 ? (u64)(wa / wb) : 0;
		out[n++] = (u32)b ? (u32)a % (u32)b : 0;
		out[n++] = (u64)(((__int128_t)sa * sb) >> 64);
		out[n++] = (u64)(((__uint128_t)a * b) >> 64);
		out[n++] = (u64)((int)((u32)wa * (u32)wb) >> (b & 31));
		out[n++] = sa < sb ? a << (b & 63) : a >> (b & 63);
	}
	return n;
}

/* Matrix products, and iterations that use division, square root, comparisons and conversions. */
static u64 floating(u64 *out)
{
	enum { N = 12 };
	static double a[N][N], b[N][N];
	static float c[N][N];
	u64 n = 0;

	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			a[i][j] = (double)(long)next() / 1e17;
			b[i][j] = (int)next() / 0x1p20;
			c[i][j] = (float)(u32)next() / 0x1p30f;
		}
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			double sum = 0;
			float product = 1;

			for (int k = 0; k < N; k++) {
				sum += a[i][k] * b[k][j];
				product = product * c[i][k] - c[k][j] / (product + 0.5f);
			}
			out[n++] = bits_of(sum);
			out[n++] = bits_of_single(product);
			out[n++] = bits_of(__builtin_sqrt(sum < 0 ? -sum : sum));
			out[n++] = (u64)(long)(sum / 1000);
			out[n++] = (u64)(int)product;
			out[n++] = sum > b[i][j] ? bits_of((float)sum) : 1;
			/* Tiny and huge: subnormal results, overflow to infinity. */
			out[n++] = bits_of(sum / 0x1p1020 / 0x1p10);
			out[n++] = bits_of_single(c[i][j] / 0x1p126f * c[j][i]);
			out[n++] = bits_of(sum * sum * 0x1p1000);
		}
	return n;
}

u64 program(u64 *out)
{
	static long values[LENGTH];
	static unsigned char text[LENGTH];
	u64 n = 0;

	state = 88172645463325252UL;
	for (int i = 0; i < LENGTH; i++) {
		values[i] = (long)next();
		text[i] = (unsigned char)next();
	}
	sort(values, 0, LENGTH - 1);
	for (int i = 0; i < LENGTH; i++)
		out[n++] = (u64)values[i];
	for (int i = 0; i < LENGTH; i += 17)
		out[n++] = crc32(text, i);
	n += arithmetic(out + n);
	n += floating(out + n);
	return n;
}

#ifndef __riscv
int printf(const char *format, ...);

int main(void)
{
	static u64 out[8192];
	u64 n = program(out);

	for (u64 i = 0; i < n; i++)
		printf("%016lx\n", out[i]);
	return 0;
}
#endif
