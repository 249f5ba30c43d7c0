// SPDX-License-Identifier: GPL-2.0
/*
 * Vulkan on Venus: fills, copies, computes and draws, reads everything back from mapped memory and
 * compares it with what the CPU computes, word by word.
 *
 * usage: vk-readback [PART-OF-A-NAME]
 */
#include "check.h"
#include "vk.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute.comp.h"
#include "picture.frag.h"
#include "picture.vert.h"

#define WIDTH 257
#define HEIGHT 131
#define PIXELS (WIDTH * HEIGHT)
#define WORDS (1u << 18)

static uint32_t expected[WORDS];

static void fill_randomly(uint32_t *words, size_t count)
{
	while (count--)
		*words++ = random32();
}

static enum verdict the_device_is_venus(void)
{
	note("%s", gpu.properties.deviceName);
	must(strstr(gpu.properties.deviceName, "Venus"));
	return PASSED;
}

static enum verdict memory_keeps_what_the_cpu_wrote(void)
{
	struct buffer b;

	must(new_buffer(&b, WORDS * 4));
	fill_randomly(expected, WORDS);
	memcpy(b.words, expected, WORDS * 4);
	must(same(b.words, expected, WORDS, 0));
	free_buffer(&b);
	return PASSED;
}

static enum verdict fills_and_copies_are_where_they_were_put(void)
{
	VkCommandBuffer commands;
	struct buffer from, to;
	uint32_t i, k;

	must(new_buffer(&from, WORDS * 4));
	must(new_buffer(&to, WORDS * 4));
	fill_randomly(from.words, WORDS);
	memset(expected, 0, sizeof(expected));
	commands = begin();
	vkCmdFillBuffer(commands, to.buffer, 0, WORDS * 4, 0);
	for (i = 0; i < 100; i++) {
		uint32_t at = random32() % WORDS, count = random32() % (WORDS - at) + 1;

		barrier(commands);
		if (i & 1) {
			uint32_t source = random32() % (WORDS - count + 1);
			VkBufferCopy copy = { source * 4, at * 4, count * 4 };

			vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &copy);
			memcpy(expected + at, from.words + source, count * 4);
		} else {
			uint32_t value = random32();

			vkCmdFillBuffer(commands, to.buffer, at * 4, count * 4, value);
			for (k = 0; k < count; k++)
				expected[at + k] = value;
		}
	}
	barrier(commands);
	must(finish(commands));
	must(same(to.words, expected, WORDS, 0));
	free_buffer(&from);
	free_buffer(&to);
	return PASSED;
}

/* The layout, pool and set for two storage buffers, and the pipeline that uses them. */
struct computing {
	VkDescriptorSetLayout set_layout;
	VkPipelineLayout layout;
	VkDescriptorPool pool;
	VkDescriptorSet set;
	VkPipeline pipeline;
};

static bool new_computing(struct computing *c, const struct buffer *in, const struct buffer *out)
{
	const VkDescriptorSetLayoutBinding bindings[] = {
		{ 0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL },
		{ 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL },
	};
	const VkDescriptorSetLayoutCreateInfo set_layout = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
		.bindingCount = 2,
		.pBindings = bindings,
	};
	const VkPipelineLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = 1,
		.pSetLayouts = &c->set_layout,
	};
	const VkDescriptorPoolSize two = { VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2 };
	const VkDescriptorPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &two,
	};
	VkDescriptorSetAllocateInfo set = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
		.descriptorSetCount = 1,
		.pSetLayouts = &c->set_layout,
	};
	const VkDescriptorBufferInfo buffers[] = {
		{ in->buffer, 0, VK_WHOLE_SIZE },
		{ out->buffer, 0, VK_WHOLE_SIZE },
	};
	VkWriteDescriptorSet write = {
		.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
		.descriptorCount = 2,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
		.pBufferInfo = buffers,
	};
	VkComputePipelineCreateInfo pipeline = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage = {
			.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			.stage = VK_SHADER_STAGE_COMPUTE_BIT,
			.module = shader(compute_comp, sizeof(compute_comp)),
			.pName = "main",
		},
	};
	bool good;

	memset(c, 0, sizeof(*c));
	good = !vkCreateDescriptorSetLayout(gpu.device, &set_layout, NULL, &c->set_layout) &&
	       !vkCreatePipelineLayout(gpu.device, &layout, NULL, &c->layout) &&
	       !vkCreateDescriptorPool(gpu.device, &pool, NULL, &c->pool);
	if (good) {
		set.descriptorPool = c->pool;
		pipeline.layout = c->layout;
		good = !vkAllocateDescriptorSets(gpu.device, &set, &c->set) &&
		       !vkCreateComputePipelines(gpu.device, VK_NULL_HANDLE, 1, &pipeline, NULL, &c->pipeline);
	}
	if (good) {
		write.dstSet = c->set;
		vkUpdateDescriptorSets(gpu.device, 1, &write, 0, NULL);
	}
	vkDestroyShaderModule(gpu.device, pipeline.stage.module, NULL);
	return good;
}

static void free_computing(struct computing *c)
{
	vkDestroyPipeline(gpu.device, c->pipeline, NULL);
	vkDestroyDescriptorPool(gpu.device, c->pool, NULL);
	vkDestroyPipelineLayout(gpu.device, c->layout, NULL);
	vkDestroyDescriptorSetLayout(gpu.device, c->set_layout, NULL);
}

static enum verdict compute_shader_works_on_a_mebibyte(void)
{
	VkCommandBuffer commands;
	struct buffer in, out;
	struct computing c;
	uint32_t i;

	must(new_buffer(&in, WORDS * 4));
	must(new_buffer(&out, WORDS * 4));
	must(new_computing(&c, &in, &out));
	fill_randomly(in.words, WORDS);
	commands = begin();
	vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, c.pipeline);
	vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, c.layout, 0, 1, &c.set, 0, NULL);
	vkCmdDispatch(commands, WORDS / 64, 1, 1);
	barrier(commands);
	must(finish(commands));
	for (i = 0; i < WORDS; i++)
		expected[i] = in.words[i] * 1664525u + i;
	must(same(out.words, expected, WORDS, 0));
	free_computing(&c);
	free_buffer(&in);
	free_buffer(&out);
	return PASSED;
}

/* A picture of one 32-bit number a pixel, to draw into and to copy from. */
struct picture {
	VkImage image;
	VkDeviceMemory memory;
	VkImageView view;
};

static bool new_picture(struct picture *p)
{
	const VkImageCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
		.imageType = VK_IMAGE_TYPE_2D,
		.format = VK_FORMAT_R32_UINT,
		.extent = { WIDTH, HEIGHT, 1 },
		.mipLevels = 1,
		.arrayLayers = 1,
		.samples = VK_SAMPLE_COUNT_1_BIT,
		.tiling = VK_IMAGE_TILING_OPTIMAL,
		.usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT |
			 VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT,
	};
	VkImageViewCreateInfo view = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
		.viewType = VK_IMAGE_VIEW_TYPE_2D,
		.format = VK_FORMAT_R32_UINT,
		.subresourceRange = { VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1 },
	};
	VkMemoryRequirements needs;

	memset(p, 0, sizeof(*p));
	if (vkCreateImage(gpu.device, &info, NULL, &p->image))
		return false;
	vkGetImageMemoryRequirements(gpu.device, p->image, &needs);
	view.image = p->image;
	return allocate(&p->memory, &needs, 0) && !vkBindImageMemory(gpu.device, p->image, p->memory, 0) &&
	       !vkCreateImageView(gpu.device, &view, NULL, &p->view);
}

static void free_picture(struct picture *p)
{
	vkDestroyImageView(gpu.device, p->view, NULL);
	vkDestroyImage(gpu.device, p->image, NULL);
	vkFreeMemory(gpu.device, p->memory, NULL);
}

static void change_layout(VkCommandBuffer commands, const struct picture *p, VkImageLayout from,
			  VkImageLayout to)
{
	const VkImageMemoryBarrier change = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
		.oldLayout = from,
		.newLayout = to,
		.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.image = p->image,
		.subresourceRange = { VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1 },
	};

	vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
			     0, 0, NULL, 0, NULL, 1, &change);
}

static const VkBufferImageCopy whole_picture = {
	.imageSubresource = { VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1 },
	.imageExtent = { WIDTH, HEIGHT, 1 },
};

static enum verdict picture_copied_in_comes_out_the_same(void)
{
	VkCommandBuffer commands;
	struct buffer from, to;
	struct picture p;

	must(new_buffer(&from, PIXELS * 4));
	must(new_buffer(&to, PIXELS * 4));
	must(new_picture(&p));
	fill_randomly(from.words, PIXELS);
	commands = begin();
	change_layout(commands, &p, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
	vkCmdCopyBufferToImage(commands, from.buffer, p.image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1,
			       &whole_picture);
	change_layout(commands, &p, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
	vkCmdCopyImageToBuffer(commands, p.image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, to.buffer, 1,
			       &whole_picture);
	barrier(commands);
	must(finish(commands));
	must(same(to.words, from.words, PIXELS, WIDTH));
	free_picture(&p);
	free_buffer(&from);
	free_buffer(&to);
	return PASSED;
}

static bool new_drawing(VkPipelineLayout *layout, VkPipeline *pipeline)
{
	const VkFormat format = VK_FORMAT_R32_UINT;
	const VkPushConstantRange key = { VK_SHADER_STAGE_FRAGMENT_BIT, 0, 4 };
	const VkPipelineLayoutCreateInfo layout_info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.pushConstantRangeCount = 1,
		.pPushConstantRanges = &key,
	};
	const VkPipelineRenderingCreateInfo rendering = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
		.colorAttachmentCount = 1,
		.pColorAttachmentFormats = &format,
	};
	const VkPipelineShaderStageCreateInfo stages[] = {
		{
			.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			.stage = VK_SHADER_STAGE_VERTEX_BIT,
			.module = shader(picture_vert, sizeof(picture_vert)),
			.pName = "main",
		}, {
			.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			.stage = VK_SHADER_STAGE_FRAGMENT_BIT,
			.module = shader(picture_frag, sizeof(picture_frag)),
			.pName = "main",
		},
	};
	const VkPipelineVertexInputStateCreateInfo no_vertices = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO,
	};
	const VkPipelineInputAssemblyStateCreateInfo triangles = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
		.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
	};
	const VkViewport viewport = { 0, 0, WIDTH, HEIGHT, 0, 1 };
	const VkRect2D scissor = { .extent = { WIDTH, HEIGHT } };
	const VkPipelineViewportStateCreateInfo view = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO,
		.viewportCount = 1,
		.pViewports = &viewport,
		.scissorCount = 1,
		.pScissors = &scissor,
	};
	const VkPipelineRasterizationStateCreateInfo raster = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO,
		.lineWidth = 1,
	};
	const VkPipelineMultisampleStateCreateInfo samples = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
		.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT,
	};
	const VkPipelineColorBlendAttachmentState no_blending = {
		.colorWriteMask = VK_COLOR_COMPONENT_R_BIT,
	};
	const VkPipelineColorBlendStateCreateInfo blend = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
		.attachmentCount = 1,
		.pAttachments = &no_blending,
	};
	VkGraphicsPipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
		.pNext = &rendering,
		.stageCount = 2,
		.pStages = stages,
		.pVertexInputState = &no_vertices,
		.pInputAssemblyState = &triangles,
		.pViewportState = &view,
		.pRasterizationState = &raster,
		.pMultisampleState = &samples,
		.pColorBlendState = &blend,
	};
	bool good = !vkCreatePipelineLayout(gpu.device, &layout_info, NULL, layout);

	info.layout = *layout;
	good = good && !vkCreateGraphicsPipelines(gpu.device, VK_NULL_HANDLE, 1, &info, NULL, pipeline);
	vkDestroyShaderModule(gpu.device, stages[0].module, NULL);
	vkDestroyShaderModule(gpu.device, stages[1].module, NULL);
	return good;
}

static enum verdict shader_computes_each_pixel(void)
{
	VkRenderingAttachmentInfo target = {
		.sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
		.imageLayout = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
		.loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
		.storeOp = VK_ATTACHMENT_STORE_OP_STORE,
	};
	const VkRenderingInfo rendering = {
		.sType = VK_STRUCTURE_TYPE_RENDERING_INFO,
		.renderArea = { .extent = { WIDTH, HEIGHT } },
		.layerCount = 1,
		.colorAttachmentCount = 1,
		.pColorAttachments = &target,
	};
	uint32_t key = random32(), x, y;
	VkCommandBuffer commands;
	VkPipelineLayout layout;
	VkPipeline pipeline;
	struct picture p;
	struct buffer to;

	must(new_buffer(&to, PIXELS * 4));
	must(new_picture(&p));
	must(new_drawing(&layout, &pipeline));
	target.imageView = p.view;
	commands = begin();
	change_layout(commands, &p, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL);
	vkCmdBeginRendering(commands, &rendering);
	vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
	vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_FRAGMENT_BIT, 0, 4, &key);
	vkCmdDraw(commands, 3, 1, 0, 0);
	vkCmdEndRendering(commands);
	change_layout(commands, &p, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
		      VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
	vkCmdCopyImageToBuffer(commands, p.image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, to.buffer, 1,
			       &whole_picture);
	barrier(commands);
	must(finish(commands));
	for (y = 0; y < HEIGHT; y++)
		for (x = 0; x < WIDTH; x++)
			expected[y * WIDTH + x] = (x * 2654435761u ^ y * 40503u) + key;
	must(same(to.words, expected, PIXELS, WIDTH));
	vkDestroyPipeline(gpu.device, pipeline, NULL);
	vkDestroyPipelineLayout(gpu.device, layout, NULL);
	free_picture(&p);
	free_buffer(&to);
	return PASSED;
}

/* The second submission waits for a point that the CPU sets, and the CPU for one that it sets. */
static enum verdict timeline_goes_from_cpu_to_gpu_and_back(void)
{
	const VkSemaphoreTypeCreateInfo timeline = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	const VkSemaphoreCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
		.pNext = &timeline,
	};
	const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	VkTimelineSemaphoreSubmitInfo points = {
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.waitSemaphoreValueCount = 1,
		.signalSemaphoreValueCount = 1,
	};
	VkSemaphoreWaitInfo wait = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
	};
	VkCommandBuffer commands;
	VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &points,
		.waitSemaphoreCount = 1,
		.pWaitDstStageMask = &all,
		.commandBufferCount = 1,
		.pCommandBuffers = &commands,
		.signalSemaphoreCount = 1,
	};
	uint64_t turn, from_cpu, from_gpu;
	VkSemaphore semaphore;
	struct buffer b;

	must(new_buffer(&b, 4096));
	must(!vkCreateSemaphore(gpu.device, &info, NULL, &semaphore));
	submit.pWaitSemaphores = &semaphore;
	submit.pSignalSemaphores = &semaphore;
	wait.pSemaphores = &semaphore;
	for (turn = 0; turn < 8; turn++) {
		VkSemaphoreSignalInfo signal = {
			.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
			.semaphore = semaphore,
			.value = 2 * turn + 1,
		};

		from_cpu = 2 * turn + 1;
		from_gpu = 2 * turn + 2;
		points.pWaitSemaphoreValues = &from_cpu;
		points.pSignalSemaphoreValues = &from_gpu;
		wait.pValues = &from_gpu;
		b.words[0] = ~0u;
		commands = begin();
		vkCmdFillBuffer(commands, b.buffer, 0, 4096, turn);
		barrier(commands);
		must(!vkEndCommandBuffer(commands));
		must(!vkQueueSubmit(gpu.queue, 1, &submit, VK_NULL_HANDLE));
		must(b.words[0] == ~0u);
		must(!vkSignalSemaphore(gpu.device, &signal));
		must(!vkWaitSemaphores(gpu.device, &wait, 20000000000ull));
		must(b.words[0] == turn && b.words[1023] == turn);
		vkFreeCommandBuffers(gpu.device, gpu.pool, 1, &commands);
	}
	vkDestroySemaphore(gpu.device, semaphore, NULL);
	free_buffer(&b);
	return PASSED;
}

/* The fence of a submission as a file of the kernel's. */
static enum verdict fence_file_is_signalled(void)
{
	const VkExportFenceCreateInfo export = {
		.sType = VK_STRUCTURE_TYPE_EXPORT_FENCE_CREATE_INFO,
		.handleTypes = VK_EXTERNAL_FENCE_HANDLE_TYPE_SYNC_FD_BIT,
	};
	const VkFenceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO,
		.pNext = &export,
	};
	VkFenceGetFdInfoKHR get = {
		.sType = VK_STRUCTURE_TYPE_FENCE_GET_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_FENCE_HANDLE_TYPE_SYNC_FD_BIT,
	};
	struct pollfd file = { .fd = -1, .events = POLLIN };
	PFN_vkGetFenceFdKHR get_file;
	VkCommandBuffer commands;
	const VkSubmitInfo submit = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.commandBufferCount = 1,
		.pCommandBuffers = &commands,
	};
	struct buffer b;

	if (!gpu.sync_files)
		return SKIPPED;
	get_file = (PFN_vkGetFenceFdKHR)vkGetDeviceProcAddr(gpu.device, "vkGetFenceFdKHR");
	must(get_file);
	must(new_buffer(&b, 1 << 20));
	must(!vkCreateFence(gpu.device, &info, NULL, &get.fence));
	commands = begin();
	vkCmdFillBuffer(commands, b.buffer, 0, 1 << 20, 0x12345678);
	barrier(commands);
	must(!vkEndCommandBuffer(commands));
	must(!vkQueueSubmit(gpu.queue, 1, &submit, get.fence));
	must(!get_file(gpu.device, &get, &file.fd));
	/* -1 stands for a fence that is signalled already. */
	if (file.fd >= 0) {
		must(poll(&file, 1, 20000) == 1 && file.revents == POLLIN);
		close(file.fd);
	}
	must(b.words[0] == 0x12345678 && b.words[(1 << 18) - 1] == 0x12345678);
	must(!vkDeviceWaitIdle(gpu.device));
	vkFreeCommandBuffers(gpu.device, gpu.pool, 1, &commands);
	vkDestroyFence(gpu.device, get.fence, NULL);
	free_buffer(&b);
	return PASSED;
}

static enum verdict hundred_memories_are_mapped_at_once_and_freed(void)
{
	static struct buffer all[100];
	VkCommandBuffer commands;
	int round, i;

	for (round = 0; round < 3; round++) {
		commands = begin();
		for (i = 0; i < 100; i++) {
			must(new_buffer(&all[i], 1 << 18));
			vkCmdFillBuffer(commands, all[i].buffer, 0, 1 << 18, i + round);
		}
		barrier(commands);
		must(finish(commands));
		for (i = 0; i < 100; i++)
			must(all[i].words[0] == (uint32_t)(i + round) &&
			     all[i].words[(1 << 16) - 1] == (uint32_t)(i + round));
		for (i = 0; i < 100; i++)
			free_buffer(&all[i]);
	}
	return PASSED;
}

/* More than fits into the window through which memory of the host is seen. */
static enum verdict window_that_is_full_is_an_error_and_then_usable_again(void)
{
	static struct buffer all[32];
	int count = 0, i;

	while (count < 32 && new_buffer(&all[count], 32 << 20))
		count++;
	note("%d buffers of 32 MiB", count);
	for (i = 0; i < count; i++) {
		all[i].words[0] = i;
		all[i].words[(8 << 20) - 1] = ~i;
	}
	for (i = 0; i < count; i++)
		must(all[i].words[0] == (uint32_t)i && all[i].words[(8 << 20) - 1] == (uint32_t)~i);
	for (i = 0; i < count; i++)
		free_buffer(&all[i]);
	must(count > 0 && count < 32);
	must(new_buffer(&all[0], 32 << 20));
	free_buffer(&all[0]);
	return PASSED;
}

int main(int argc, char **argv)
{
#define TEST(name) { #name, name }
	static const struct test tests[] = {
		TEST(the_device_is_venus),
		TEST(memory_keeps_what_the_cpu_wrote),
		TEST(fills_and_copies_are_where_they_were_put),
		TEST(compute_shader_works_on_a_mebibyte),
		TEST(picture_copied_in_comes_out_the_same),
		TEST(shader_computes_each_pixel),
		TEST(timeline_goes_from_cpu_to_gpu_and_back),
		TEST(fence_file_is_signalled),
		TEST(hundred_memories_are_mapped_at_once_and_freed),
		TEST(window_that_is_full_is_an_error_and_then_usable_again),
	};

	if (!open_gpu()) {
		printf("not ok 1 - vk: there is no Vulkan 1.3 device\n");
		return EXIT_FAILURE;
	}
	return run_tests("vk", tests, ARRAY_SIZE(tests), argc, argv);
}
