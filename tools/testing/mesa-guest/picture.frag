// SPDX-License-Identifier: GPL-2.0
#version 450
layout(push_constant) uniform Arguments { uint key; };
layout(location = 0) out uint result;

void main()
{
	uvec2 at = uvec2(gl_FragCoord.xy);

	result = (at.x * 2654435761u ^ at.y * 40503u) + key;
}
