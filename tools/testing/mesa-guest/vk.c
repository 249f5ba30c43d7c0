// SPDX-License-Identifier: GPL-2.0
/* See vk.h. */
#include "vk.h"

#include "check.h"

#include <string.h>

struct gpu gpu;

static bool has_extension(const char *name)
{
	VkExtensionProperties all[512];
	uint32_t count = 512, i;

	if (vkEnumerateDeviceExtensionProperties(gpu.physical, NULL, &count, all) < 0)
		return false;
	for (i = 0; i < count; i++)
		if (!strcmp(all[i].extensionName, name))
			return true;
	return false;
}

static bool open_instance(void)
{
	const VkApplicationInfo about = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "ochre-vk-readback",
		.apiVersion = VK_API_VERSION_1_3,
	};
	const VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &about,
	};
	uint32_t count = 1;

	if (vkCreateInstance(&info, NULL, &gpu.instance)) {
		note("there is no Vulkan");
		return false;
	}
	if (vkEnumeratePhysicalDevices(gpu.instance, &count, &gpu.physical) < 0 || !count) {
		note("there is no device");
		return false;
	}
	vkGetPhysicalDeviceProperties(gpu.physical, &gpu.properties);
	vkGetPhysicalDeviceMemoryProperties(gpu.physical, &gpu.memory);
	return true;
}

static bool find_family(void)
{
	const VkQueueFlags wanted = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT;
	VkQueueFamilyProperties all[16];
	uint32_t count = 16;

	vkGetPhysicalDeviceQueueFamilyProperties(gpu.physical, &count, all);
	for (gpu.family = 0; gpu.family < count; gpu.family++)
		if ((all[gpu.family].queueFlags & wanted) == wanted)
			return true;
	note("there is no queue for graphics and compute");
	return false;
}

static bool open_device(void)
{
	static const char *const sync_files[] = { VK_KHR_EXTERNAL_FENCE_FD_EXTENSION_NAME };
	const float priority = 1;
	const VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueFamilyIndex = gpu.family,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkPhysicalDeviceVulkan13Features features13 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
		.dynamicRendering = VK_TRUE,
	};
	VkPhysicalDeviceVulkan12Features features12 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
		.pNext = &features13,
		.timelineSemaphore = VK_TRUE,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &features12,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
	};

	gpu.sync_files = has_extension(sync_files[0]);
	info.enabledExtensionCount = gpu.sync_files;
	info.ppEnabledExtensionNames = sync_files;
	if (vkCreateDevice(gpu.physical, &info, NULL, &gpu.device)) {
		note("the device does not open");
		return false;
	}
	vkGetDeviceQueue(gpu.device, gpu.family, 0, &gpu.queue);
	return true;
}

bool open_gpu(void)
{
	VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
	};

	if (!open_instance() || !find_family() || !open_device())
		return false;
	pool.queueFamilyIndex = gpu.family;
	return !vkCreateCommandPool(gpu.device, &pool, NULL, &gpu.pool);
}

bool allocate(VkDeviceMemory *memory, const VkMemoryRequirements *needs, VkMemoryPropertyFlags kind)
{
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.allocationSize = needs->size,
	};
	uint32_t i;

	for (i = 0; i < gpu.memory.memoryTypeCount; i++) {
		if (!(needs->memoryTypeBits & 1u << i) ||
		    (gpu.memory.memoryTypes[i].propertyFlags & kind) != kind)
			continue;
		info.memoryTypeIndex = i;
		return !vkAllocateMemory(gpu.device, &info, NULL, memory);
	}
	note("no type of memory fits");
	return false;
}

bool new_buffer(struct buffer *buffer, VkDeviceSize size)
{
	const VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.size = size,
		.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
			 VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
	};
	VkMemoryRequirements needs;

	memset(buffer, 0, sizeof(*buffer));
	buffer->size = size;
	if (vkCreateBuffer(gpu.device, &info, NULL, &buffer->buffer))
		return false;
	vkGetBufferMemoryRequirements(gpu.device, buffer->buffer, &needs);
	if (allocate(&buffer->memory, &needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
		     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) &&
	    !vkBindBufferMemory(gpu.device, buffer->buffer, buffer->memory, 0) &&
	    !vkMapMemory(gpu.device, buffer->memory, 0, VK_WHOLE_SIZE, 0, (void **)&buffer->words))
		return true;
	free_buffer(buffer);
	return false;
}

void free_buffer(struct buffer *buffer)
{
	vkDestroyBuffer(gpu.device, buffer->buffer, NULL);
	vkFreeMemory(gpu.device, buffer->memory, NULL);
}

VkCommandBuffer begin(void)
{
	const VkCommandBufferAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.commandPool = gpu.pool,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	const VkCommandBufferBeginInfo once = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	VkCommandBuffer commands = VK_NULL_HANDLE;

	if (!vkAllocateCommandBuffers(gpu.device, &info, &commands))
		vkBeginCommandBuffer(commands, &once);
	return commands;
}

bool finish(VkCommandBuffer commands)
{
	const VkFenceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO };
	const VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &commands,
	};
	VkFence fence = VK_NULL_HANDLE;
	bool good;

	good = !vkEndCommandBuffer(commands) && !vkCreateFence(gpu.device, &info, NULL, &fence) &&
	       !vkQueueSubmit(gpu.queue, 1, &submit, fence) &&
	       !vkWaitForFences(gpu.device, 1, &fence, VK_TRUE, 20000000000ull);
	vkDestroyFence(gpu.device, fence, NULL);
	vkFreeCommandBuffers(gpu.device, gpu.pool, 1, &commands);
	return good;
}

void barrier(VkCommandBuffer commands)
{
	const VkMemoryBarrier all = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT |
				 VK_ACCESS_HOST_READ_BIT,
	};

	vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
			     VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all,
			     0, NULL, 0, NULL);
}

VkShaderModule shader(const uint32_t *words, size_t bytes)
{
	const VkShaderModuleCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
		.codeSize = bytes,
		.pCode = words,
	};
	VkShaderModule module = VK_NULL_HANDLE;

	vkCreateShaderModule(gpu.device, &info, NULL, &module);
	return module;
}
