// SPDX-License-Identifier: GPL-2.0

//! The rendering context of an open file, and the ioctl CONTEXT_INIT.
//!
//! A file has no context until it needs one: CONTEXT_INIT makes it as the program wants it, the
//! first ioctl that renders makes a plain one. From then on it does not change. It is destroyed
//! with the file; its id is free again when the device has answered to that.
//!
//! A context is *refused* if the device did not want to make it, which is known only later, and
//! *lost* if the device was reset after it was made. Either way all later uses of it fail.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};

use super::{
    control::{
        CleanupNode,
        Command, //
    },
    device::Device,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    fences::Timeline,
    ids::ContextId,
    keep::Keep,
    limits,
    verdict::Verdict,
    wire, //
};
use crate::ext::{
    dma_fence,
    ioctl::{
        user_slice,
        UserArray, //
    },
    task,
    uapi_virtio as uapi, //
};

/// A name of at most [`limits::NAME_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    bytes: [u8; limits::NAME_MAX],
    len: usize,
}

impl Name {
    /// Takes the beginning of `text`.
    fn new(text: &[u8]) -> Self {
        let mut bytes = [0; limits::NAME_MAX];
        for (to, from) in bytes.iter_mut().zip(text) {
            *to = *from;
        }
        let len = text.len().min(limits::NAME_MAX);
        Self { bytes, len }
    }

    /// The name of the task that runs.
    fn of_task() -> Self {
        let comm = task::current_comm();
        let len = comm.iter().position(|&c| c == 0).unwrap_or(comm.len());
        Self::new(comm.get(..len).unwrap_or(&[]))
    }

    /// Reads a string of user space.
    fn read(addr: u64) -> Result<Self> {
        let mut text = [0; limits::NAME_MAX + 1];
        let read = user_slice(addr, text.len())?
            .reader()
            .strcpy_into_buf(&mut text)?;
        Ok(Self::new(read.to_bytes()))
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// What a program wants its context to be like.
#[derive(Default)]
struct Wanted {
    capset: Option<u8>,
    rings: Option<u32>,
    poll_rings: Option<u64>,
    /// Address of the name.
    name: Option<u64>,
}

impl Wanted {
    /// Understands the parameters of CONTEXT_INIT. `capsets` are the ids that the device knows.
    /// [`EINVAL`]: an unknown one, one out of range, or one kind twice.
    fn parse(params: &[uapi::drm_virtgpu_context_set_param], capsets: u64) -> Result<Self> {
        let mut this = Self::default();
        for param in params {
            let (kind, value) = (u32::try_from(param.param), param.value);
            let twice = match kind.map_err(|_| EINVAL)? {
                uapi::VIRTGPU_CONTEXT_PARAM_CAPSET_ID => {
                    if value > limits::CAPSET_ID_MAX || capsets & (1 << value) == 0 {
                        return Err(EINVAL);
                    }
                    this.capset.replace(u8::try_from(value)?).is_some()
                }
                uapi::VIRTGPU_CONTEXT_PARAM_NUM_RINGS => {
                    if value > u64::from(limits::RINGS_MAX) {
                        return Err(EINVAL);
                    }
                    this.rings.replace(u32::try_from(value)?).is_some()
                }
                uapi::VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK => {
                    this.poll_rings.replace(value).is_some()
                }
                uapi::VIRTGPU_CONTEXT_PARAM_DEBUG_NAME => this.name.replace(value).is_some(),
                _ => return Err(EINVAL),
            };
            if twice {
                return Err(EINVAL);
            }
        }
        // A shift by all 64 bits leaves nothing.
        let beyond = u64::MAX.checked_shl(this.rings.unwrap_or(0)).unwrap_or(0);
        if this.poll_rings.unwrap_or(0) & beyond != 0 {
            return Err(EINVAL);
        }
        Ok(this)
    }
}

/// A context that the device was asked to make.
pub(super) struct Live {
    id: u32,
    /// Of the device, when it was made.
    generation: u64,
    verdict: Arc<Verdict>,
    /// What the device answered to the streams that have no fence to tell it.
    streams: Arc<Verdict>,
    /// One for each command ring.
    rings: KVec<Timeline>,
    /// The rings whose fences tell the program by an event.
    poll_rings: u64,
}

impl Live {
    /// What the device calls it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The device's generation in which it was made.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The timeline of a command ring; [`EINVAL`] if there is no such ring.
    pub(super) fn ring(&self, index: u32) -> Result<&Timeline> {
        let ring = usize::try_from(index).ok().and_then(|i| self.rings.get(i));
        ring.ok_or(EINVAL)
    }

    /// Whether the program wants an event for each fence of a command ring.
    pub(super) fn is_polled(&self, index: u32) -> bool {
        self.poll_rings.checked_shr(index).unwrap_or(0) & 1 != 0
    }

    /// Where the answers to streams without a fence are noted.
    pub(super) fn streams(&self) -> &Arc<Verdict> {
        &self.streams
    }

    /// Tells, once, of an error with which the device answered a stream that had no fence.
    pub(super) fn report(&self) -> Result {
        self.streams.take()
    }

    /// Whether it can be used in `generation` of the device. [`EIO`]: it is lost; otherwise the
    /// error with which the device refused it.
    pub(super) fn check(&self, generation: u64) -> Result {
        if self.generation != generation {
            return Err(EIO);
        }
        self.verdict.get()
    }
}

/// What is needed to destroy a context.
struct Remains {
    id: ContextId,
    generation: u64,
    node: CleanupNode,
}

/// The place of a file's context.
#[pin_data]
pub(super) struct Context {
    live: SetOnce<Live>,
    /// Full if `live` is. Held while the context is made, so that it is made once; a leaf but for
    /// the control queue's lock.
    #[pin]
    remains: Mutex<Option<Remains>>,
}

impl Context {
    /// No context yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            live: SetOnce::new(),
            remains <- new_mutex!(None, "ochre_context"),
        })
    }

    /// The context, if there is one.
    pub(super) fn get(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// The context. Makes a plain one, with the task's name, if there is none.
    ///
    /// May wait, interruptibly, for room: no lock may be held.
    pub(super) fn get_or_make(&self, device: &Arc<Device>) -> Result<&Live> {
        if let Some(live) = self.get() {
            return Ok(live);
        }
        match self.make(device, &Wanted::default(), &Name::of_task()) {
            // Another thread was faster.
            Err(error) if error == EEXIST => {}
            result => result?,
        }
        // What the caller does next may fail, and then nobody would.
        device.flush();
        self.get().ok_or(ENODEV)
    }

    /// Makes the context. [`EEXIST`] if there is one.
    fn make(&self, device: &Arc<Device>, wanted: &Wanted, name: &Name) -> Result {
        let count = wanted.rings.unwrap_or(0);
        let mut rings = KVec::with_capacity(usize::try_from(count)?, GFP_KERNEL_ACCOUNT)?;
        if count > 0 {
            let first = dma_fence::context_alloc(count);
            for index in 0..u64::from(count) {
                rings.push(Timeline::new(first + index), GFP_KERNEL_ACCOUNT)?;
            }
        }
        let verdict = Arc::new(Verdict::new(), GFP_KERNEL_ACCOUNT)?;
        let streams = Arc::new(Verdict::new(), GFP_KERNEL_ACCOUNT)?;
        let node = CleanupNode::new(GFP_KERNEL_ACCOUNT)?;
        let id = device.context_ids().alloc()?;
        let mut room = device.reserve(1)?;

        let mut remains = self.remains.lock();
        if remains.is_some() {
            return Err(EEXIST);
        }
        let live = Live {
            id: id.get(),
            generation: room.generation(),
            verdict: verdict.clone(),
            streams,
            rings,
            poll_rings: wanted.poll_rings.unwrap_or(0),
        };
        let capset = wanted.capset.unwrap_or(0);
        let request = wire::ctx_create(live.id, capset.into(), name.as_bytes());
        device.submit(
            &mut room,
            Command::new(request).keep(Keep::Verdict(verdict)),
        );
        *remains = Some(Remains {
            id,
            generation: live.generation,
            node,
        });
        self.live.populate(live);
        Ok(())
    }

    /// Destroys the context when the file is closed.
    pub(super) fn destroy(&self, device: &Arc<Device>) {
        let Some(remains) = self.remains.lock().take() else {
            return;
        };
        let request = wire::ctx_destroy(remains.id.get());
        device.submit_cleanup(
            remains.node,
            remains.generation,
            request,
            Some(Keep::Context(remains.id)),
        );
        device.flush();
    }
}

/// `DRM_IOCTL_VIRTGPU_CONTEXT_INIT`.
pub(super) fn ioctl_init(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_context_init,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    if !device.caps().context_init || !device.caps().virgl || args.pad != 0 {
        return Err(EINVAL);
    }
    let params = UserArray::<uapi::drm_virtgpu_context_set_param>::new(
        args.ctx_set_params,
        args.num_params,
        limits::CONTEXT_PARAMS_MAX,
    )?
    .read_all()?;
    let file = file.inner();
    let context = file.context();
    if context.get().is_some() {
        return Err(EEXIST);
    }
    let wanted = Wanted::parse(&params, device.capset_mask())?;
    let name = match wanted.name {
        Some(addr) => Name::read(addr)?,
        None => Name::of_task(),
    };
    context.make(device, &wanted, &name)?;
    device.flush();
    Ok(0)
}

#[kunit_tests(ochre_virtio_context)]
mod tests {
    use super::*;

    const CAPSETS: u64 = 1 << 2 | 1 << 4 | 1 << 63;

    fn parse(params: &[(u32, u64)]) -> Result<Wanted> {
        let mut list = KVec::new();
        for &(param, value) in params {
            let param = uapi::drm_virtgpu_context_set_param {
                param: param.into(),
                value,
            };
            list.push(param, GFP_KERNEL)?;
        }
        Wanted::parse(&list, CAPSETS)
    }

    #[test]
    fn what_venus_asks_for_is_understood() -> Result {
        let wanted = parse(&[
            (uapi::VIRTGPU_CONTEXT_PARAM_CAPSET_ID, 4),
            (uapi::VIRTGPU_CONTEXT_PARAM_NUM_RINGS, 64),
            (uapi::VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK, 0),
        ])?;
        assert_eq!(wanted.capset, Some(4));
        assert_eq!(wanted.rings, Some(64));
        assert_eq!(wanted.poll_rings, Some(0));
        assert_eq!(wanted.name, None);
        Ok(())
    }

    #[test]
    fn capset_that_the_device_does_not_know_is_refused() {
        for id in [0, 1, 3, 64, 66, u64::MAX] {
            let refused = parse(&[(uapi::VIRTGPU_CONTEXT_PARAM_CAPSET_ID, id)]).err();
            assert_eq!(refused, Some(EINVAL));
        }
        assert!(parse(&[(uapi::VIRTGPU_CONTEXT_PARAM_CAPSET_ID, 63)]).is_ok());
    }

    #[test]
    fn each_parameter_is_taken_once() {
        for (param, value) in [
            (uapi::VIRTGPU_CONTEXT_PARAM_CAPSET_ID, 2),
            (uapi::VIRTGPU_CONTEXT_PARAM_NUM_RINGS, 0),
            (uapi::VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK, 0),
            (uapi::VIRTGPU_CONTEXT_PARAM_DEBUG_NAME, 0x1000),
        ] {
            assert!(parse(&[(param, value)]).is_ok());
            let refused = parse(&[(param, value), (param, value)]).err();
            assert_eq!(refused, Some(EINVAL));
        }
        assert_eq!(parse(&[(0, 0)]).err(), Some(EINVAL));
        assert_eq!(parse(&[(5, 0)]).err(), Some(EINVAL));
    }

    #[test]
    fn only_rings_that_exist_can_be_polled() {
        let rings = uapi::VIRTGPU_CONTEXT_PARAM_NUM_RINGS;
        let mask = uapi::VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK;
        // In either order.
        assert!(parse(&[(mask, 0b11), (rings, 2)]).is_ok());
        assert!(parse(&[(rings, 64), (mask, u64::MAX)]).is_ok());
        assert_eq!(parse(&[(rings, 2), (mask, 0b100)]).err(), Some(EINVAL));
        assert_eq!(parse(&[(mask, 1)]).err(), Some(EINVAL));
        assert_eq!(parse(&[(rings, 65)]).err(), Some(EINVAL));
    }

    #[test]
    fn long_name_is_cut_and_a_short_one_kept() {
        assert_eq!(Name::new(b"glmark2").as_bytes(), b"glmark2");
        assert_eq!(Name::new(b"").as_bytes(), b"");
        assert_eq!(Name::new(&[b'x'; 100]).as_bytes(), [b'x'; 64]);
    }
}
