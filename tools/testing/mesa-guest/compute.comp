// SPDX-License-Identifier: GPL-2.0
#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer In { uint a[]; };
layout(std430, binding = 1) writeonly buffer Out { uint b[]; };

void main()
{
	uint i = gl_GlobalInvocationID.x;

	b[i] = a[i] * 1664525u + i;
}
