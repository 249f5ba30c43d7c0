// SPDX-License-Identifier: GPL-2.0
/*
 * A Vulkan layer for the renderer behind Venus: hides VK_EXT_external_memory_dma_buf.
 *
 * Mesa's software driver offers to export memory as a dma-buf also on a machine where it cannot make
 * one, because there is neither a GPU nor /dev/udmabuf. Venus in the guest takes it at its word, and
 * no program with a swapchain starts. Without the offer it shares memory in another way, which works.
 */
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

/* Of the next layer, or of the loader at the end; the same for all instances. */
static PFN_vkGetInstanceProcAddr next_proc_addr;
static PFN_vkEnumerateDeviceExtensionProperties next_extensions;

static VkResult extensions(VkPhysicalDevice device, const char *layer, uint32_t *count,
			   VkExtensionProperties *list)
{
	uint32_t all_count = 0, kept = 0, i;
	VkExtensionProperties *all;
	VkResult result;

	if (layer)
		return next_extensions(device, layer, count, list);
	result = next_extensions(device, NULL, &all_count, NULL);
	if (result)
		return result;
	all = calloc(all_count, sizeof(*all));
	if (!all)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	result = next_extensions(device, NULL, &all_count, all);
	for (i = 0; i < all_count; i++)
		if (strcmp(all[i].extensionName, VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME))
			all[kept++] = all[i];
	if (list) {
		if (*count < kept) {
			kept = *count;
			result = VK_INCOMPLETE;
		}
		memcpy(list, all, kept * sizeof(*all));
	}
	*count = kept;
	free(all);
	return result;
}

static VkResult create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator,
				VkInstance *instance)
{
	VkLayerInstanceCreateInfo *link = (VkLayerInstanceCreateInfo *)info->pNext;
	PFN_vkCreateInstance create;
	VkResult result;

	while (link && (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO ||
			link->function != VK_LAYER_LINK_INFO))
		link = (VkLayerInstanceCreateInfo *)link->pNext;
	if (!link)
		return VK_ERROR_INITIALIZATION_FAILED;
	next_proc_addr = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
	link->u.pLayerInfo = link->u.pLayerInfo->pNext;
	create = (PFN_vkCreateInstance)next_proc_addr(NULL, "vkCreateInstance");
	result = create(info, allocator, instance);
	if (!result)
		next_extensions = (PFN_vkEnumerateDeviceExtensionProperties)
			next_proc_addr(*instance, "vkEnumerateDeviceExtensionProperties");
	return result;
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
	if (!strcmp(name, "vkGetInstanceProcAddr"))
		return (PFN_vkVoidFunction)vkGetInstanceProcAddr;
	if (!strcmp(name, "vkCreateInstance"))
		return (PFN_vkVoidFunction)create_instance;
	if (!strcmp(name, "vkEnumerateDeviceExtensionProperties"))
		return (PFN_vkVoidFunction)extensions;
	return next_proc_addr ? next_proc_addr(instance, name) : NULL;
}
