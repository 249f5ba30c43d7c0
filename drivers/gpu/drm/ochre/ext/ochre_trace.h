/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the driver for og1 boards. ext/tracepoint.rs calls them.
 *
 * A job is named by its fence, as the tracepoints of dma_fence name it: @context and
 * @seqno. @dev may be NULL, in tests.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ochre

#if !defined(_OCHRE_TRACE_H_) || defined(TRACE_HEADER_MULTI_READ)
#define _OCHRE_TRACE_H_

#include <linux/device.h>
#include <linux/tracepoint.h>

TRACE_EVENT(ochre_job_queue,
	TP_PROTO(struct device *dev, u32 queue, u32 engine, u64 context,
		 u64 seqno, u32 words, u32 waits),
	TP_ARGS(dev, queue, engine, context, seqno, words, waits),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u64, context)
		__field(u64, seqno)
		__field(u32, queue)
		__field(u32, engine)
		__field(u32, words)
		__field(u32, waits)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->context = context;
		__entry->seqno = seqno;
		__entry->queue = queue;
		__entry->engine = engine;
		__entry->words = words;
		__entry->waits = waits;
	),
	TP_printk("dev=%s queue=%u engine=%u fence=%llu:%llu words=%u waits=%u",
		  __get_str(dev), __entry->queue, __entry->engine,
		  __entry->context, __entry->seqno, __entry->words,
		  __entry->waits)
);

TRACE_EVENT(ochre_job_run,
	TP_PROTO(struct device *dev, u32 queue, u32 engine, u64 context,
		 u64 seqno),
	TP_ARGS(dev, queue, engine, context, seqno),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u64, context)
		__field(u64, seqno)
		__field(u32, queue)
		__field(u32, engine)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->context = context;
		__entry->seqno = seqno;
		__entry->queue = queue;
		__entry->engine = engine;
	),
	TP_printk("dev=%s queue=%u engine=%u fence=%llu:%llu", __get_str(dev),
		  __entry->queue, __entry->engine, __entry->context,
		  __entry->seqno)
);

TRACE_EVENT(ochre_job_done,
	TP_PROTO(struct device *dev, u32 queue, u32 engine, u64 context,
		 u64 seqno, int error),
	TP_ARGS(dev, queue, engine, context, seqno, error),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u64, context)
		__field(u64, seqno)
		__field(u32, queue)
		__field(u32, engine)
		__field(int, error)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->context = context;
		__entry->seqno = seqno;
		__entry->queue = queue;
		__entry->engine = engine;
		__entry->error = error;
	),
	TP_printk("dev=%s queue=%u engine=%u fence=%llu:%llu error=%d",
		  __get_str(dev), __entry->queue, __entry->engine,
		  __entry->context, __entry->seqno, __entry->error)
);

/* What the board wrote into a queue's fence record, when the driver took it over. */
TRACE_EVENT(ochre_fence,
	TP_PROTO(u32 queue, u64 context, u64 seqno),
	TP_ARGS(queue, context, seqno),
	TP_STRUCT__entry(
		__field(u64, context)
		__field(u64, seqno)
		__field(u32, queue)
	),
	TP_fast_assign(
		__entry->context = context;
		__entry->seqno = seqno;
		__entry->queue = queue;
	),
	TP_printk("queue=%u fence=%llu:%llu", __entry->queue,
		  __entry->context, __entry->seqno)
);

TRACE_EVENT(ochre_irq,
	TP_PROTO(struct device *dev, u32 vector),
	TP_ARGS(dev, vector),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u32, vector)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->vector = vector;
	),
	TP_printk("dev=%s vector=%u", __get_str(dev), __entry->vector)
);

/* @access: 0 read, 1 write, 2 execute, 3 atomic */
TRACE_EVENT(ochre_fault,
	TP_PROTO(struct device *dev, u32 queue, u32 code, u32 access, u64 addr,
		 u64 pc),
	TP_ARGS(dev, queue, code, access, addr, pc),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u64, addr)
		__field(u64, pc)
		__field(u32, queue)
		__field(u32, code)
		__field(u32, access)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->addr = addr;
		__entry->pc = pc;
		__entry->queue = queue;
		__entry->code = code;
		__entry->access = access;
	),
	TP_printk("dev=%s queue=%u code=%u access=%s addr=0x%llx pc=0x%llx",
		  __get_str(dev), __entry->queue, __entry->code,
		  __print_symbolic(__entry->access, { 0, "read" },
				   { 1, "write" }, { 2, "exec" },
				   { 3, "atomic" }),
		  __entry->addr, __entry->pc)
);

/* @domain: 0 core, 1 memory; a change that has ended, well or not */
TRACE_EVENT(ochre_frequency,
	TP_PROTO(struct device *dev, u32 domain, u32 khz, u32 microvolts,
		 int error),
	TP_ARGS(dev, domain, khz, microvolts, error),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u32, domain)
		__field(u32, khz)
		__field(u32, microvolts)
		__field(int, error)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->domain = domain;
		__entry->khz = khz;
		__entry->microvolts = microvolts;
		__entry->error = error;
	),
	TP_printk("dev=%s domain=%s khz=%u microvolts=%u error=%d",
		  __get_str(dev),
		  __print_symbolic(__entry->domain, { 0, "core" },
				   { 1, "memory" }),
		  __entry->khz, __entry->microvolts, __entry->error)
);

/* @scope: 0 slot, 1 engine, 2 device; @phase: 0 begun, 1 done, 2 refused */
TRACE_EVENT(ochre_reset,
	TP_PROTO(struct device *dev, u32 scope, u32 engine, u32 slot,
		 u32 phase),
	TP_ARGS(dev, scope, engine, slot, phase),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u32, scope)
		__field(u32, engine)
		__field(u32, slot)
		__field(u32, phase)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->scope = scope;
		__entry->engine = engine;
		__entry->slot = slot;
		__entry->phase = phase;
	),
	TP_printk("dev=%s scope=%s engine=%u slot=%u phase=%s", __get_str(dev),
		  __print_symbolic(__entry->scope, { 0, "slot" },
				   { 1, "engine" }, { 2, "device" }),
		  __entry->engine, __entry->slot,
		  __print_symbolic(__entry->phase, { 0, "begin" },
				   { 1, "done" }, { 2, "refused" }))
);

/* @region: 0 system memory, 1 VRAM */
DECLARE_EVENT_CLASS(ochre_bo,
	TP_PROTO(const void *bo, u64 size, u32 region),
	TP_ARGS(bo, size, region),
	TP_STRUCT__entry(
		__field(const void *, bo)
		__field(u64, size)
		__field(u32, region)
	),
	TP_fast_assign(
		__entry->bo = bo;
		__entry->size = size;
		__entry->region = region;
	),
	TP_printk("bo=%p size=%llu region=%s", __entry->bo, __entry->size,
		  __print_symbolic(__entry->region, { 0, "system" },
				   { 1, "vram" }))
);

DEFINE_EVENT(ochre_bo, ochre_bo_create,
	TP_PROTO(const void *bo, u64 size, u32 region),
	TP_ARGS(bo, size, region)
);

DEFINE_EVENT(ochre_bo, ochre_bo_free,
	TP_PROTO(const void *bo, u64 size, u32 region),
	TP_ARGS(bo, size, region)
);

DECLARE_EVENT_CLASS(ochre_vm,
	TP_PROTO(struct device *dev, u32 context, u64 addr, u64 size),
	TP_ARGS(dev, context, addr, size),
	TP_STRUCT__entry(
		__string(dev, dev ? dev_name(dev) : "-")
		__field(u64, addr)
		__field(u64, size)
		__field(u32, context)
	),
	TP_fast_assign(
		__assign_str(dev);
		__entry->addr = addr;
		__entry->size = size;
		__entry->context = context;
	),
	TP_printk("dev=%s context=%u addr=0x%llx size=%llu", __get_str(dev),
		  __entry->context, __entry->addr, __entry->size)
);

DEFINE_EVENT(ochre_vm, ochre_vm_map,
	TP_PROTO(struct device *dev, u32 context, u64 addr, u64 size),
	TP_ARGS(dev, context, addr, size)
);

DEFINE_EVENT(ochre_vm, ochre_vm_unmap,
	TP_PROTO(struct device *dev, u32 context, u64 addr, u64 size),
	TP_ARGS(dev, context, addr, size)
);

#endif

/* Outside the guard, for what defines them. The folder is given to the compiler. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE ochre_trace
#include <trace/define_trace.h>
