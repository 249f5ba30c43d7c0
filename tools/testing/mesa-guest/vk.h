/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of Vulkan that is the same for every test: one device with one queue, buffers in memory
 * that the CPU sees, command buffers that are waited for.
 */
#ifndef VK_H
#define VK_H

#include <stdbool.h>
#include <stdint.h>
#include <vulkan/vulkan.h>

struct gpu {
	VkInstance instance;
	VkPhysicalDevice physical;
	VkPhysicalDeviceProperties properties;
	VkPhysicalDeviceMemoryProperties memory;
	VkDevice device;
	uint32_t family;
	VkQueue queue;
	VkCommandPool pool;
	bool sync_files;
};

/* A buffer with memory of its own, mapped. */
struct buffer {
	VkBuffer buffer;
	VkDeviceMemory memory;
	VkDeviceSize size;
	uint32_t *words;
};

extern struct gpu gpu;

/* Opens the first device; says on standard output why there is none. */
bool open_gpu(void);

/* Each returns false, with nothing left, when the device refuses. */
bool new_buffer(struct buffer *buffer, VkDeviceSize size);
bool allocate(VkDeviceMemory *memory, const VkMemoryRequirements *needs, VkMemoryPropertyFlags kind);

void free_buffer(struct buffer *buffer);

/* Begins a command buffer; submits it, waits for it (20 s) and frees it. */
VkCommandBuffer begin(void);
bool finish(VkCommandBuffer commands);

/* What came before is seen by all that comes after, the CPU included. */
void barrier(VkCommandBuffer commands);

/* The words are those of a .spv file. */
VkShaderModule shader(const uint32_t *words, size_t bytes);

#endif
