// SPDX-License-Identifier: GPL-2.0
/*
 * OpenGL ES on virgl: draws, computes and copies, reads everything back and compares it with what
 * the CPU computes, pixel by pixel. Without a window, through EGL's surfaceless platform.
 *
 * usage: gl-readback [PART-OF-A-NAME]
 */
#include "check.h"

#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GLES3/gl31.h>
#include <GLES2/gl2ext.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH 257
#define HEIGHT 131
#define PIXELS (WIDTH * HEIGHT)

static EGLDisplay display;
static EGLContext context;

/* Of extensions; the libraries do not export them. */
static PFNEGLDUPNATIVEFENCEFDANDROIDPROC dup_fence_file;
static PFNEGLEXPORTDMABUFIMAGEQUERYMESAPROC query_dma_buf;
static PFNEGLEXPORTDMABUFIMAGEMESAPROC export_dma_buf;
static PFNGLBUFFERSTORAGEEXTPROC buffer_storage;
static PFNGLEGLIMAGETARGETTEXTURE2DOESPROC image_to_texture;

/* A triangle that covers the whole picture, from no vertex data. */
static const char *const whole_picture =
	"#version 310 es\n"
	"void main() {\n"
	"	vec2 at = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0;\n"
	"	gl_Position = vec4(at, 0, 1);\n"
	"}\n";

static GLuint shader(GLenum kind, const char *text)
{
	GLuint name = glCreateShader(kind);
	char log[512];
	GLint good;

	glShaderSource(name, 1, &text, NULL);
	glCompileShader(name);
	glGetShaderiv(name, GL_COMPILE_STATUS, &good);
	if (!good) {
		glGetShaderInfoLog(name, sizeof(log), NULL, log);
		note("%s", log);
	}
	return name;
}

/* A program of one or two shaders; 0 if it does not link. */
static GLuint program(GLuint first, GLuint second)
{
	GLuint name = glCreateProgram();
	GLint good;

	glAttachShader(name, first);
	if (second)
		glAttachShader(name, second);
	glLinkProgram(name);
	glGetProgramiv(name, GL_LINK_STATUS, &good);
	glDeleteShader(first);
	if (second)
		glDeleteShader(second);
	return good ? name : 0;
}

/* A texture of one 32-bit number (or four 8-bit ones) a pixel, in a framebuffer that is bound. */
struct picture {
	GLuint texture, framebuffer;
};

static struct picture picture(GLenum format, int width, int height)
{
	struct picture p;

	glGenTextures(1, &p.texture);
	glBindTexture(GL_TEXTURE_2D, p.texture);
	glTexStorage2D(GL_TEXTURE_2D, 1, format, width, height);
	glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
	glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
	glGenFramebuffers(1, &p.framebuffer);
	glBindFramebuffer(GL_FRAMEBUFFER, p.framebuffer);
	glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, p.texture, 0);
	glViewport(0, 0, width, height);
	return p;
}

static void forget(struct picture p)
{
	glDeleteFramebuffers(1, &p.framebuffer);
	glDeleteTextures(1, &p.texture);
}

static void read_numbers(int width, int height, uint32_t *to)
{
	glReadPixels(0, 0, width, height, GL_RED_INTEGER, GL_UNSIGNED_INT, to);
}

static void read_colours(int width, int height, uint32_t *to)
{
	glReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, to);
}

static void fill_randomly(uint32_t *words, size_t count)
{
	while (count--)
		*words++ = random32();
}

/* What most tests need: one picture from the GPU, one from the CPU. */
static uint32_t found[1024 * 1024], expected[1024 * 1024];

static enum verdict the_renderer_is_virgl(void)
{
	const char *renderer = (const char *)glGetString(GL_RENDERER);

	note("%s", renderer);
	must(!strncmp(renderer, "virgl", 5));
	return PASSED;
}

static enum verdict cleared_rectangles_are_where_they_were_put(void)
{
	struct picture p = picture(GL_RGBA8, WIDTH, HEIGHT);
	int i, x, y;

	memset(expected, 0, sizeof(expected));
	glClearColor(0, 0, 0, 0);
	glClear(GL_COLOR_BUFFER_BIT);
	glEnable(GL_SCISSOR_TEST);
	for (i = 0; i < 200; i++) {
		int left = random32() % WIDTH, bottom = random32() % HEIGHT;
		int wide = random32() % (WIDTH - left) + 1, high = random32() % (HEIGHT - bottom) + 1;
		/* 0 and 1 are the values that every rounding keeps. */
		uint32_t bits = random32(), colour = 0;

		for (x = 0; x < 4; x++)
			colour |= bits >> x & 1 ? 0xffu << 8 * x : 0;
		glScissor(left, bottom, wide, high);
		glClearColor(bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1);
		glClear(GL_COLOR_BUFFER_BIT);
		for (y = bottom; y < bottom + high; y++)
			for (x = left; x < left + wide; x++)
				expected[y * WIDTH + x] = colour;
	}
	glDisable(GL_SCISSOR_TEST);
	read_colours(WIDTH, HEIGHT, found);
	forget(p);
	must(same(found, expected, PIXELS, WIDTH));
	return PASSED;
}

static enum verdict shader_computes_each_pixel(void)
{
	GLuint drawing = program(shader(GL_VERTEX_SHADER, whole_picture), shader(GL_FRAGMENT_SHADER,
		"#version 310 es\n"
		"precision highp int;\n"
		"uniform highp uint key;\n"
		"out highp uvec4 result;\n"
		"void main() {\n"
		"	uvec2 at = uvec2(gl_FragCoord.xy);\n"
		"	result = uvec4((at.x * 2654435761u ^ at.y * 40503u) + key, 0, 0, 1);\n"
		"}\n"));
	struct picture p = picture(GL_R32UI, WIDTH, HEIGHT);
	uint32_t key = random32(), x, y;

	must(drawing);
	glUseProgram(drawing);
	glUniform1ui(glGetUniformLocation(drawing, "key"), key);
	glDrawArrays(GL_TRIANGLES, 0, 3);
	read_numbers(WIDTH, HEIGHT, found);
	glDeleteProgram(drawing);
	forget(p);
	for (y = 0; y < HEIGHT; y++)
		for (x = 0; x < WIDTH; x++)
			expected[y * WIDTH + x] = (x * 2654435761u ^ y * 40503u) + key;
	must(same(found, expected, PIXELS, WIDTH));
	return PASSED;
}

static enum verdict textures_of_all_sizes_come_back_as_they_went(void)
{
	static const int sizes[][2] = { { 1, 1 }, { 3, 5 }, { 64, 64 }, { 257, 129 }, { 1024, 1 },
					{ 1, 1024 }, { 1024, 1024 } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		int width = sizes[i][0], height = sizes[i][1];
		struct picture p = picture(GL_R32UI, width, height);

		fill_randomly(expected, width * height);
		glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, GL_RED_INTEGER, GL_UNSIGNED_INT,
				expected);
		read_numbers(width, height, found);
		forget(p);
		note("%d x %d", width, height);
		must(same(found, expected, width * height, width));
	}
	return PASSED;
}

static enum verdict part_of_a_texture_is_replaced_and_no_more(void)
{
	static uint32_t part[PIXELS];
	struct picture p = picture(GL_R32UI, WIDTH, HEIGHT);
	int i, x, y;

	fill_randomly(expected, PIXELS);
	glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, WIDTH, HEIGHT, GL_RED_INTEGER, GL_UNSIGNED_INT, expected);
	for (i = 0; i < 50; i++) {
		int left = random32() % WIDTH, bottom = random32() % HEIGHT;
		int wide = random32() % (WIDTH - left) + 1, high = random32() % (HEIGHT - bottom) + 1;

		fill_randomly(part, wide * high);
		glTexSubImage2D(GL_TEXTURE_2D, 0, left, bottom, wide, high, GL_RED_INTEGER,
				GL_UNSIGNED_INT, part);
		for (y = 0; y < high; y++)
			for (x = 0; x < wide; x++)
				expected[(bottom + y) * WIDTH + left + x] = part[y * wide + x];
	}
	read_numbers(WIDTH, HEIGHT, found);
	forget(p);
	must(same(found, expected, PIXELS, WIDTH));
	return PASSED;
}

static enum verdict drawing_samples_the_texture_that_was_uploaded(void)
{
	GLuint drawing = program(shader(GL_VERTEX_SHADER, whole_picture), shader(GL_FRAGMENT_SHADER,
		"#version 310 es\n"
		"precision highp int;\n"
		"uniform highp usampler2D source;\n"
		"out highp uvec4 result;\n"
		"void main() { result = ~texelFetch(source, ivec2(gl_FragCoord.xy), 0); }\n"));
	struct picture from = picture(GL_R32UI, WIDTH, HEIGHT), to;
	int i;

	must(drawing);
	fill_randomly(expected, PIXELS);
	glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, WIDTH, HEIGHT, GL_RED_INTEGER, GL_UNSIGNED_INT, expected);
	to = picture(GL_R32UI, WIDTH, HEIGHT);
	glBindTexture(GL_TEXTURE_2D, from.texture);
	glUseProgram(drawing);
	glDrawArrays(GL_TRIANGLES, 0, 3);
	read_numbers(WIDTH, HEIGHT, found);
	glDeleteProgram(drawing);
	forget(from);
	forget(to);
	for (i = 0; i < PIXELS; i++)
		expected[i] = ~expected[i];
	must(same(found, expected, PIXELS, WIDTH));
	return PASSED;
}

static GLuint buffer(GLenum target, size_t bytes, const void *data)
{
	GLuint name;

	glGenBuffers(1, &name);
	glBindBuffer(target, name);
	glBufferData(target, bytes, data, GL_DYNAMIC_READ);
	return name;
}

static enum verdict compute_shader_works_on_a_mebibyte(void)
{
	const size_t count = 1 << 18;
	GLuint computing = program(shader(GL_COMPUTE_SHADER,
		"#version 310 es\n"
		"layout(local_size_x = 64) in;\n"
		"layout(std430, binding = 0) readonly buffer In { uint a[]; };\n"
		"layout(std430, binding = 1) writeonly buffer Out { uint b[]; };\n"
		"void main() {\n"
		"	uint i = gl_GlobalInvocationID.x;\n"
		"	b[i] = a[i] * 1664525u + i;\n"
		"}\n"), 0);
	GLuint in, out;
	size_t i;

	must(computing);
	fill_randomly(expected, count);
	in = buffer(GL_SHADER_STORAGE_BUFFER, count * 4, expected);
	out = buffer(GL_SHADER_STORAGE_BUFFER, count * 4, NULL);
	glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, in);
	glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 1, out);
	glUseProgram(computing);
	glDispatchCompute(count / 64, 1, 1);
	glMemoryBarrier(GL_BUFFER_UPDATE_BARRIER_BIT);
	memcpy(found, glMapBufferRange(GL_SHADER_STORAGE_BUFFER, 0, count * 4, GL_MAP_READ_BIT), count * 4);
	glUnmapBuffer(GL_SHADER_STORAGE_BUFFER);
	glDeleteBuffers(1, &in);
	glDeleteBuffers(1, &out);
	glDeleteProgram(computing);
	for (i = 0; i < count; i++)
		expected[i] = expected[i] * 1664525u + i;
	must(same(found, expected, count, 0));
	return PASSED;
}

static enum verdict pixels_read_into_a_buffer_are_the_same(void)
{
	struct picture p = picture(GL_R32UI, WIDTH, HEIGHT);
	GLuint name;

	fill_randomly(expected, PIXELS);
	glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, WIDTH, HEIGHT, GL_RED_INTEGER, GL_UNSIGNED_INT, expected);
	name = buffer(GL_PIXEL_PACK_BUFFER, PIXELS * 4, NULL);
	read_numbers(WIDTH, HEIGHT, NULL);
	memcpy(found, glMapBufferRange(GL_PIXEL_PACK_BUFFER, 0, PIXELS * 4, GL_MAP_READ_BIT), PIXELS * 4);
	glUnmapBuffer(GL_PIXEL_PACK_BUFFER);
	glDeleteBuffers(1, &name);
	forget(p);
	must(same(found, expected, PIXELS, WIDTH));
	return PASSED;
}

static bool has(const char *list, const char *extension)
{
	size_t length = strlen(extension);

	for (; (list = strstr(list, extension)); list += length)
		if (list[length] == ' ' || !list[length])
			return true;
	return false;
}

/* Written by the CPU while it stays mapped: on virgl this is a blob in the host-visible window. */
static enum verdict mapping_that_stays_is_seen_by_both_sides(void)
{
	const GLbitfield how = GL_MAP_READ_BIT | GL_MAP_WRITE_BIT | GL_MAP_PERSISTENT_BIT_EXT |
			       GL_MAP_COHERENT_BIT_EXT;
	const size_t count = 1 << 16;
	GLuint computing, name;
	uint32_t *mapped;
	size_t i, round;

	if (!has((const char *)glGetString(GL_EXTENSIONS), "GL_EXT_buffer_storage"))
		return SKIPPED;
	computing = program(shader(GL_COMPUTE_SHADER,
		"#version 310 es\n"
		"layout(local_size_x = 64) in;\n"
		"layout(std430, binding = 0) buffer Both { uint a[]; };\n"
		"void main() { a[gl_GlobalInvocationID.x] ^= 0x5a5a5a5au; }\n"), 0);
	must(computing);
	glGenBuffers(1, &name);
	glBindBuffer(GL_SHADER_STORAGE_BUFFER, name);
	buffer_storage(GL_SHADER_STORAGE_BUFFER, count * 4, NULL, how);
	mapped = glMapBufferRange(GL_SHADER_STORAGE_BUFFER, 0, count * 4, how);
	must(mapped);
	glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, name);
	glUseProgram(computing);
	for (round = 0; round < 8; round++) {
		GLsync fence;

		fill_randomly(expected, count);
		memcpy(mapped, expected, count * 4);
		glDispatchCompute(count / 64, 1, 1);
		glMemoryBarrier(GL_CLIENT_MAPPED_BUFFER_BARRIER_BIT_EXT);
		fence = glFenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
		must(glClientWaitSync(fence, GL_SYNC_FLUSH_COMMANDS_BIT, 20000000000ull) !=
		     GL_TIMEOUT_EXPIRED);
		glDeleteSync(fence);
		for (i = 0; i < count; i++)
			expected[i] ^= 0x5a5a5a5au;
		must(same(mapped, expected, count, 0));
	}
	glUnmapBuffer(GL_SHADER_STORAGE_BUFFER);
	glDeleteBuffers(1, &name);
	glDeleteProgram(computing);
	return PASSED;
}

/* The fence of a submission as a file, which the kernel makes; and a submission that waits for it. */
static enum verdict fence_file_is_signalled_and_waited_for(void)
{
	static const EGLAttrib new_fence[] = { EGL_SYNC_NATIVE_FENCE_FD_ANDROID, EGL_NO_NATIVE_FENCE_FD_ANDROID,
					    EGL_NONE };
	struct picture p;
	EGLAttrib that_fence[] = { EGL_SYNC_NATIVE_FENCE_FD_ANDROID, -1, EGL_NONE };
	struct pollfd file = { .events = POLLIN };
	EGLSync sync;

	if (!has(eglQueryString(display, EGL_EXTENSIONS), "EGL_ANDROID_native_fence_sync"))
		return SKIPPED;
	p = picture(GL_RGBA8, WIDTH, HEIGHT);
	glClearColor(1, 0, 1, 0);
	glClear(GL_COLOR_BUFFER_BIT);
	sync = eglCreateSync(display, EGL_SYNC_NATIVE_FENCE_ANDROID, new_fence);
	must(sync != EGL_NO_SYNC);
	glFlush();
	file.fd = dup_fence_file(display, sync);
	must(file.fd >= 0);
	that_fence[1] = dup(file.fd);
	must(poll(&file, 1, 20000) == 1 && file.revents == POLLIN);
	close(file.fd);
	eglDestroySync(display, sync);

	sync = eglCreateSync(display, EGL_SYNC_NATIVE_FENCE_ANDROID, that_fence);
	must(sync != EGL_NO_SYNC);
	must(eglWaitSync(display, sync, 0));
	read_colours(1, 1, found);
	must(found[0] == 0x00ff00ff);
	eglDestroySync(display, sync);
	forget(p);
	return PASSED;
}

/* Out to a dma-buf and in again as another texture. */
static enum verdict texture_shared_as_a_dma_buf_shows_the_same(void)
{
	const char *extensions = eglQueryString(display, EGL_EXTENSIONS);
	struct picture p, other;
	EGLAttrib dma_buf[] = {
		EGL_WIDTH, 256, EGL_HEIGHT, 64, EGL_LINUX_DRM_FOURCC_EXT, 0, EGL_DMA_BUF_PLANE0_FD_EXT, -1,
		EGL_DMA_BUF_PLANE0_OFFSET_EXT, 0, EGL_DMA_BUF_PLANE0_PITCH_EXT, 0, EGL_NONE
	};
	EGLImage image, again;
	EGLint stride, offset;
	EGLuint64KHR modifier;
	int fourcc, planes, fd;
	int i;

	if (!has(extensions, "EGL_MESA_image_dma_buf_export") ||
	    !has(extensions, "EGL_EXT_image_dma_buf_import"))
		return SKIPPED;
	p = picture(GL_RGBA8, 256, 64);
	for (i = 0; i < 256 * 64; i++)
		expected[i] = random32();
	glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, 256, 64, GL_RGBA, GL_UNSIGNED_BYTE, expected);
	glFinish();
	image = eglCreateImage(display, context, EGL_GL_TEXTURE_2D, (EGLClientBuffer)(uintptr_t)p.texture,
				  NULL);
	must(image);
	must(query_dma_buf(display, image, &fourcc, &planes, &modifier));
	must(planes == 1);
	must(export_dma_buf(display, image, &fd, &stride, &offset));
	dma_buf[5] = fourcc;
	dma_buf[7] = fd;
	dma_buf[9] = offset;
	dma_buf[11] = stride;
	again = eglCreateImage(display, EGL_NO_CONTEXT, EGL_LINUX_DMA_BUF_EXT, NULL, dma_buf);
	must(again);
	glGenTextures(1, &other.texture);
	glBindTexture(GL_TEXTURE_2D, other.texture);
	image_to_texture(GL_TEXTURE_2D, again);
	glGenFramebuffers(1, &other.framebuffer);
	glBindFramebuffer(GL_FRAMEBUFFER, other.framebuffer);
	glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, other.texture, 0);
	read_colours(256, 64, found);
	close(fd);
	eglDestroyImage(display, image);
	eglDestroyImage(display, again);
	forget(p);
	forget(other);
	must(same(found, expected, 256 * 64, 256));
	return PASSED;
}

static const EGLint version[] = { EGL_CONTEXT_MAJOR_VERSION, 3, EGL_CONTEXT_MINOR_VERSION, 1, EGL_NONE };

static enum verdict two_contexts_share_a_texture(void)
{
	struct picture p = picture(GL_R32UI, WIDTH, HEIGHT), other;
	EGLContext second = eglCreateContext(display, EGL_NO_CONFIG_KHR, context, version);

	must(second != EGL_NO_CONTEXT);
	fill_randomly(expected, PIXELS);
	glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, WIDTH, HEIGHT, GL_RED_INTEGER, GL_UNSIGNED_INT, expected);
	glFinish();
	must(eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, second));
	other.texture = p.texture;
	glGenFramebuffers(1, &other.framebuffer);
	glBindFramebuffer(GL_FRAMEBUFFER, other.framebuffer);
	glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, p.texture, 0);
	read_numbers(WIDTH, HEIGHT, found);
	must(eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context));
	eglDestroyContext(display, second);
	forget(p);
	must(same(found, expected, PIXELS, WIDTH));
	return PASSED;
}

static enum verdict hundred_contexts_come_and_go(void)
{
	int i;

	for (i = 0; i < 100; i++) {
		EGLContext other = eglCreateContext(display, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, version);
		struct picture p;

		must(other != EGL_NO_CONTEXT);
		must(eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, other));
		p = picture(GL_RGBA8, 1, 1);
		glClearColor(i & 1, i >> 1 & 1, i >> 2 & 1, 1);
		glClear(GL_COLOR_BUFFER_BIT);
		read_colours(1, 1, found);
		forget(p);
		must(eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context));
		eglDestroyContext(display, other);
		must(found[0] == (0xff000000u | (i & 1) * 0xff | (i >> 1 & 1) * 0xff00 |
				  (i >> 2 & 1) * 0xff0000));
	}
	return PASSED;
}

static bool set_up(void)
{
	display = eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, NULL);
	if (!eglInitialize(display, NULL, NULL) || !eglBindAPI(EGL_OPENGL_ES_API))
		return false;
	dup_fence_file = (void *)eglGetProcAddress("eglDupNativeFenceFDANDROID");
	query_dma_buf = (void *)eglGetProcAddress("eglExportDMABUFImageQueryMESA");
	export_dma_buf = (void *)eglGetProcAddress("eglExportDMABUFImageMESA");
	buffer_storage = (void *)eglGetProcAddress("glBufferStorageEXT");
	image_to_texture = (void *)eglGetProcAddress("glEGLImageTargetTexture2DOES");
	context = eglCreateContext(display, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, version);
	return context != EGL_NO_CONTEXT &&
	       eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context);
}

int main(int argc, char **argv)
{
#define TEST(name) { #name, name }
	static const struct test tests[] = {
		TEST(the_renderer_is_virgl),
		TEST(cleared_rectangles_are_where_they_were_put),
		TEST(shader_computes_each_pixel),
		TEST(textures_of_all_sizes_come_back_as_they_went),
		TEST(part_of_a_texture_is_replaced_and_no_more),
		TEST(drawing_samples_the_texture_that_was_uploaded),
		TEST(compute_shader_works_on_a_mebibyte),
		TEST(pixels_read_into_a_buffer_are_the_same),
		TEST(mapping_that_stays_is_seen_by_both_sides),
		TEST(fence_file_is_signalled_and_waited_for),
		TEST(texture_shared_as_a_dma_buf_shows_the_same),
		TEST(two_contexts_share_a_texture),
		TEST(hundred_contexts_come_and_go),
	};

	if (!set_up()) {
		printf("not ok 1 - gl: there is no OpenGL ES 3.1 without a surface (%#x)\n", eglGetError());
		return EXIT_FAILURE;
	}
	return run_tests("gl", tests, ARRAY_SIZE(tests), argc, argv);
}
