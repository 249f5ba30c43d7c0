// SPDX-License-Identifier: GPL-2.0
//! The GPU: contexts, resources, and the commands on them (5.7.6).
//!
//! A command is executed at once when it is fetched, in the order of the queue. What it does is
//! decided here; when its answer is given is the machine's business. A command that breaks a rule of
//! the specification is reported and fails; one that a program got wrong only fails, because a driver
//! cannot know what programs ask of the GPU.

mod backing;
mod display;
mod reader;
mod resource;
pub mod stream;
mod window;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ochre_vfio_user as vfu;
use vfu::SharedMemory;
use vfu::View;

use crate::answers::Finish;
use crate::config::Capset;
use crate::config::Config;
use crate::config::CAPSET_MAX;
use crate::config::PAGE;
use crate::fault::Faults;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::record::Record;
use crate::ring::Chain;
use crate::ring::RingFault;
use crate::wire::blob;
use crate::wire::feature::Features;
use crate::wire::flag;
use crate::wire::Cmd;
use crate::wire::Fields;
use crate::wire::Header;
use crate::wire::Resp;
use crate::wire::CAPSET_MASK;
use crate::wire::HEADER;
use crate::wire::MAX_RINGS;
use backing::Backing;
pub use reader::Reader;
use resource::Direction;
use resource::Extent;
use resource::Place;
use resource::Resource;
use resource::Shape;
use resource::Transfer;
use window::Window;

/// Resources and contexts that can exist at a time.
const OBJECTS_MAX: usize = 1 << 18;
/// Pieces of guest memory that all resources together can have.
const ENTRIES_MAX: usize = 1 << 22;
/// Failed creations that are remembered.
const FAILED_MAX: usize = 1 << 12;
/// Longest name of a context.
const NAME_MAX: u32 = 64;
/// Bytes of the longest fixed part of a command.
const BODY_MAX: usize = 72;

/// Why a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail {
    /// A rule was broken, about something; and the response.
    Broke(Rule, u64, Resp),
    /// Only the response.
    Refused(Resp),
}

impl Fail {
    /// An address that is no memory.
    pub fn memory(fault: RingFault) -> Self {
        Self::Broke(fault.rule, fault.info, Resp::ErrUnspec)
    }
}

/// What a command needs of the board around the GPU.
pub struct Env<'a> {
    /// Guest memory.
    pub memory: &'a View<'a>,
    /// The judge.
    pub judge: &'a mut Judge,
    /// Counters.
    pub record: &'a mut Record,
    /// What the driver has accepted.
    pub features: Features,
    /// What the board is to do wrong.
    pub faults: &'a Faults,
}

/// A command that was executed.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its header.
    pub header: Header,
    /// The resource that it named, or 0.
    pub resource: u32,
    /// The response.
    pub response: u32,
    /// What follows the response's header.
    pub body: Vec<u8>,
    /// How long the work takes.
    pub took: Duration,
    /// What happens when the answer is given.
    pub finish: Finish,
}

/// A context.
#[derive(Clone, Debug, Default)]
struct Context {
    /// Resources that it was given.
    resources: BTreeSet<u32>,
    /// The capset that it speaks.
    capset: u32,
}

/// What a command of a kind did.
struct Work {
    response: Resp,
    body: Vec<u8>,
    took: Duration,
    finish: Finish,
}

impl Work {
    fn answer(response: Resp, body: Vec<u8>) -> Result<Self, Fail> {
        Ok(Self {
            response,
            body,
            took: Duration::ZERO,
            finish: Finish::None,
        })
    }

    fn nothing() -> Result<Self, Fail> {
        Self::answer(Resp::OkNodata, Vec::new())
    }
}

/// A mapping as the control socket lists it: offset, bytes, resource, about to end.
pub type Mapped = (u64, u64, u32, bool);

/// The GPU.
#[derive(Debug)]
pub struct Gpu {
    config: Config,
    resources: BTreeMap<u32, Resource>,
    contexts: BTreeMap<u32, Context>,
    window: Window,
    /// Ids of resources and contexts whose creation failed. A driver sends what follows before it
    /// knows, so that to name them fails, but breaks no rule.
    failed: [BTreeSet<u32>; 2],
    /// Bytes of all resources on the host's side.
    bytes: u64,
    /// Pieces of guest memory of all resources.
    entries: usize,
}

/// Bytes after the header, the resource's place among them, and the feature that a command needs.
fn shape(command: Cmd) -> (usize, Option<usize>, Features) {
    let none = Features::empty();
    match command {
        Cmd::GetDisplayInfo => (0, None, none),
        Cmd::ResourceCreate2d => (16, Some(0), none),
        Cmd::ResourceUnref | Cmd::AttachBacking | Cmd::DetachBacking => (8, Some(0), none),
        Cmd::SetScanout => (24, Some(20), none),
        Cmd::ResourceFlush => (24, Some(16), none),
        Cmd::TransferToHost2d => (32, Some(24), none),
        Cmd::GetCapsetInfo | Cmd::GetCapset => (8, None, none),
        Cmd::GetEdid => (8, None, Features::EDID),
        Cmd::AssignUuid => (8, Some(0), Features::UUID),
        Cmd::CreateBlob => (32, Some(0), Features::BLOB),
        Cmd::SetScanoutBlob => (72, Some(20), Features::BLOB),
        Cmd::CtxCreate => (72, None, Features::VIRGL),
        Cmd::CtxDestroy => (0, None, Features::VIRGL),
        Cmd::CtxAttachResource | Cmd::CtxDetachResource => (8, Some(0), Features::VIRGL),
        Cmd::ResourceCreate3d => (48, Some(0), Features::VIRGL),
        Cmd::TransferToHost3d | Cmd::TransferFromHost3d => (48, Some(32), Features::VIRGL),
        Cmd::Submit3d => (8, None, Features::VIRGL),
        Cmd::MapBlob => (16, Some(0), Features::BLOB),
        Cmd::UnmapBlob => (8, Some(0), Features::BLOB),
        Cmd::UpdateCursor | Cmd::MoveCursor => (32, Some(16), none),
    }
}

/// Rectangle: column, row, width, height.
fn rectangle(fields: &mut Fields<'_>) -> [u32; 4] {
    [0; 4].map(|_| fields.u32())
}

struct Submission<'a> {
    memory: &'a View<'a>,
    context: &'a Context,
    resources: &'a mut BTreeMap<u32, Resource>,
    window: &'a Window,
}

impl stream::Machine for Submission<'_> {
    fn write(&mut self, id: u32, offset: u32, value: u32) -> Result<(), Fail> {
        let resource = self
            .resources
            .get_mut(&id)
            .filter(|_| self.context.resources.contains(&id))
            .ok_or(Fail::Refused(Resp::ErrResource))?;
        if self.window.find(id).is_some() {
            return if self.window.set_word(id, offset, value) {
                Ok(())
            } else {
                Err(Fail::Refused(Resp::ErrParameter))
            };
        }
        resource.store(self.memory, offset, value)
    }
}

impl Gpu {
    /// Without contexts and resources.
    pub fn new(config: Config, window: Option<Arc<SharedMemory>>) -> Self {
        Self {
            config,
            resources: BTreeMap::new(),
            contexts: BTreeMap::new(),
            window: Window::new(window),
            failed: Default::default(),
            bytes: 0,
            entries: 0,
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.resources.clear();
        self.contexts.clear();
        self.window.reset();
        self.failed = Default::default();
        self.bytes = 0;
        self.entries = 0;
    }

    /// Number of resources, contexts, mappings and pieces of guest memory.
    pub fn live(&self) -> [usize; 4] {
        [
            self.resources.len(),
            self.contexts.len(),
            self.window.mappings().count(),
            self.entries,
        ]
    }

    /// Each resource: id, kind, bytes, pieces of guest memory.
    pub fn resources(&self) -> impl Iterator<Item = (u32, &'static str, u64, usize)> + '_ {
        self.resources
            .iter()
            .map(|(id, r)| (*id, r.shape.name(), r.bytes(), r.entries()))
    }

    /// Each context: id, capset, number of its resources.
    pub fn contexts(&self) -> impl Iterator<Item = (u32, u32, usize)> + '_ {
        self.contexts
            .iter()
            .map(|(id, context)| (*id, context.capset, context.resources.len()))
    }

    /// What is in the window.
    pub fn mappings(&self) -> impl Iterator<Item = Mapped> + '_ {
        self.window
            .mappings()
            .map(|(at, m)| (at, m.bytes, m.resource, m.unmapping))
    }

    /// A word of a resource as the host sees it.
    pub fn peek(&mut self, memory: &View<'_>, id: u32, offset: u32) -> Option<u32> {
        if let Some(word) = self.window.word(id, offset) {
            return Some(word);
        }
        self.resources.get_mut(&id)?.load(memory, offset).ok()
    }

    /// The answer to an UNMAP_BLOB of the place at this offset was given.
    pub fn finish_unmap(&mut self, offset: u64) {
        let mut all = self.window.mappings();
        let Some((_, mapping)) = all.find(|(at, mapping)| *at == offset && mapping.unmapping)
        else {
            return;
        };
        let id = mapping.resource;
        drop(all);
        self.window
            .finish_unmap(offset, self.resources.get_mut(&id));
    }

    /// Executes the command of a chain, which came through the cursor queue, or the other one.
    pub fn execute(&mut self, env: &mut Env<'_>, chain: &Chain, cursor: bool) -> Done {
        let mut done = Done {
            header: Header::default(),
            resource: 0,
            response: Resp::ErrUnspec.code(),
            body: Vec::new(),
            took: Duration::ZERO,
            finish: Finish::None,
        };
        let mut reader = Reader::new(env.memory, &chain.readable);
        let attempt = self.attempt(env, &mut reader, &mut done, cursor);
        self.note(&done, attempt.is_ok());
        match attempt {
            Ok(work) => {
                done.response = work.response.code();
                done.body = work.body;
                done.took = work.took;
                done.finish = work.finish;
            }
            Err(Fail::Broke(rule, info, response)) => {
                env.judge.report(rule, info);
                done.response = response.code();
            }
            Err(Fail::Refused(response)) => done.response = response.code(),
        }
        done
    }

    /// Answers the command of a chain with a response, and does nothing else.
    pub fn refuse(&mut self, memory: &View<'_>, chain: &Chain, response: u32) -> Done {
        let mut reader = Reader::new(memory, &chain.readable);
        let mut bytes = [0; HEADER];
        let header = match reader.read(&mut bytes) {
            Ok(()) => Header::parse(&bytes),
            Err(_) => Header::default(),
        };
        let mut resource = 0;
        if let Some((len, Some(at), _)) = Cmd::from_code(header.kind).map(shape) {
            let mut body = [0; BODY_MAX];
            if reader.read(&mut body[..len]).is_ok() {
                resource = Fields(&body[at..]).u32();
            }
        }
        let done = Done {
            header,
            resource,
            response,
            body: Vec::new(),
            took: Duration::ZERO,
            finish: Finish::None,
        };
        self.note(&done, false);
        done
    }

    /// Notes whether what a command was to create exists, or that it is not named any more.
    fn note(&mut self, done: &Done, executed: bool) {
        let (kind, id) = match Cmd::from_code(done.header.kind) {
            Some(
                Cmd::ResourceCreate2d
                | Cmd::ResourceCreate3d
                | Cmd::CreateBlob
                | Cmd::ResourceUnref,
            ) => (0, done.resource),
            Some(Cmd::CtxCreate | Cmd::CtxDestroy) => (1, done.header.ctx_id),
            _ => return,
        };
        let ends = matches!(
            Cmd::from_code(done.header.kind),
            Some(Cmd::ResourceUnref | Cmd::CtxDestroy)
        );
        let exists = match kind {
            0 => self.resources.contains_key(&id),
            _ => self.contexts.contains_key(&id),
        };
        let failed = &mut self.failed[kind];
        if executed || ends || exists {
            failed.remove(&id);
        } else if failed.len() < FAILED_MAX {
            failed.insert(id);
        }
    }

    fn attempt(
        &mut self,
        env: &mut Env<'_>,
        reader: &mut Reader<'_>,
        done: &mut Done,
        cursor: bool,
    ) -> Result<Work, Fail> {
        let mut bytes = [0; HEADER];
        reader.read(&mut bytes)?;
        let header = Header::parse(&bytes);
        done.header = header;
        let kind = u64::from(header.kind);
        let unknown = Fail::Broke(Rule::CommandUnknown, kind, Resp::ErrUnspec);
        let command = Cmd::from_code(header.kind).ok_or(unknown)?;
        if cursor != matches!(command, Cmd::UpdateCursor | Cmd::MoveCursor) {
            return Err(unknown);
        }
        check_header(&header, env.features)?;

        let (len, resource, feature) = shape(command);
        let mut body = [0; BODY_MAX];
        let body = &mut body[..len];
        reader.read(body)?;
        if !env.features.contains(feature) {
            return Err(Fail::Broke(Rule::FeatureMissing, kind, Resp::ErrUnspec));
        }
        if let Some(at) = resource {
            done.resource = Fields(&body[at..]).u32();
        }
        self.command(env, reader, &header, command, body, done.resource)
    }

    fn command(
        &mut self,
        env: &mut Env<'_>,
        reader: &mut Reader<'_>,
        header: &Header,
        command: Cmd,
        body: &[u8],
        id: u32,
    ) -> Result<Work, Fail> {
        let mut fields = Fields(body);
        let f = &mut fields;
        match command {
            Cmd::GetDisplayInfo => {
                Work::answer(Resp::OkDisplayInfo, display::info(self.config.scanouts))
            }
            Cmd::GetEdid => {
                self.check_scanout(f.u32())?;
                Work::answer(Resp::OkEdid, display::edid())
            }
            Cmd::GetCapsetInfo => self.capset_info(env, f.u32()),
            Cmd::GetCapset => self.capset(env, f.u32(), f.u32()),
            Cmd::ResourceCreate2d | Cmd::ResourceCreate3d => self.create(command, id, f),
            Cmd::CreateBlob => self.create_blob(env, reader, header, id, f),
            Cmd::ResourceUnref => self.unref(id),
            Cmd::AttachBacking => {
                f.u32();
                self.attach(env, reader, id, f.u32())
            }
            Cmd::DetachBacking => {
                let resource = self.resource(id)?;
                let taken = resource.backing.take();
                let broke = Fail::Broke(Rule::Backing, id.into(), Resp::ErrUnspec);
                self.entries -= taken.ok_or(broke)?.entries();
                Work::nothing()
            }
            Cmd::AssignUuid => {
                self.resource(id)?;
                let mut uuid = *b"ochre uuid..\0\0\0\0";
                uuid[12..].copy_from_slice(&id.to_be_bytes());
                Work::answer(Resp::OkResourceUuid, uuid.to_vec())
            }
            Cmd::SetScanout => {
                rectangle(f);
                self.scanout(f.u32(), id)
            }
            Cmd::SetScanoutBlob => {
                rectangle(f);
                self.scanout(f.u32(), id)
            }
            Cmd::ResourceFlush => {
                self.resource(id)?;
                Work::nothing()
            }
            Cmd::UpdateCursor | Cmd::MoveCursor => {
                let scanout = f.u32();
                self.check_scanout(scanout)?;
                if command == Cmd::UpdateCursor && id != 0 {
                    self.resource(id)?;
                }
                Work::nothing()
            }
            Cmd::CtxCreate => self.create_context(env, header.ctx_id, f.u32(), f.u32()),
            Cmd::CtxDestroy => {
                self.context(header.ctx_id)?;
                self.contexts.remove(&header.ctx_id);
                Work::nothing()
            }
            Cmd::CtxAttachResource => {
                self.resource(id)?;
                self.context(header.ctx_id)?.resources.insert(id);
                Work::nothing()
            }
            Cmd::CtxDetachResource => {
                self.resource(id)?;
                self.context(header.ctx_id)?.resources.remove(&id);
                Work::nothing()
            }
            Cmd::TransferToHost2d => {
                let [x, y, width, height] = rectangle(f);
                let place = Place {
                    at: [x, y, 0],
                    size: [width, height, 1],
                };
                let transfer = Transfer {
                    place,
                    offset: f.u64(),
                    ..Transfer::default()
                };
                self.transfer(env, id, &transfer, Direction::ToHost)
            }
            Cmd::TransferToHost3d | Cmd::TransferFromHost3d => {
                if header.ctx_id != 0 {
                    self.context(header.ctx_id)?;
                }
                let place = Place {
                    at: [0; 3].map(|_| f.u32()),
                    size: [0; 3].map(|_| f.u32()),
                };
                let (offset, _) = (f.u64(), f.u32());
                let transfer = Transfer {
                    place,
                    offset,
                    level: f.u32(),
                    stride: f.u32(),
                    layer_stride: f.u32(),
                };
                let direction = match command {
                    Cmd::TransferToHost3d => Direction::ToHost,
                    _ => Direction::FromHost,
                };
                self.transfer(env, id, &transfer, direction)
            }
            Cmd::Submit3d => self.submit(env, reader, header.ctx_id, f.u32()),
            Cmd::MapBlob => {
                f.u64();
                self.map(env, id, f.u64())
            }
            Cmd::UnmapBlob => self.unmap(id),
        }
    }

    fn resource(&mut self, id: u32) -> Result<&mut Resource, Fail> {
        let unknown = if self.failed[0].contains(&id) {
            Fail::Refused(Resp::ErrResource)
        } else {
            Fail::Broke(Rule::ResourceUnknown, id.into(), Resp::ErrResource)
        };
        self.resources.get_mut(&id).ok_or(unknown)
    }

    fn unknown_context(&self, id: u32) -> Fail {
        if self.failed[1].contains(&id) {
            Fail::Refused(Resp::ErrContext)
        } else {
            Fail::Broke(Rule::ContextUnknown, id.into(), Resp::ErrContext)
        }
    }

    fn context(&mut self, id: u32) -> Result<&mut Context, Fail> {
        let unknown = self.unknown_context(id);
        self.contexts.get_mut(&id).ok_or(unknown)
    }

    fn check_scanout(&self, scanout: u32) -> Result<(), Fail> {
        if scanout < self.config.scanouts {
            Ok(())
        } else {
            let info = scanout.into();
            Err(Fail::Broke(Rule::Scanout, info, Resp::ErrScanout))
        }
    }

    fn scanout(&mut self, scanout: u32, id: u32) -> Result<Work, Fail> {
        self.check_scanout(scanout)?;
        // Resource 0 switches the display off.
        if id != 0 {
            self.resource(id)?;
        }
        Work::nothing()
    }

    fn capset_info(&mut self, env: &Env<'_>, index: u32) -> Result<Work, Fail> {
        let known = self.config.capsets.get(index as usize).copied();
        let told = env.faults.capset(index).or(known);
        let told = match (told, env.faults.capset_count) {
            (Some(capset), _) => capset,
            // The configuration has told of more than there are.
            (None, Some(count)) if index < count => Capset {
                id: 1,
                version: 0,
                size: 0,
            },
            _ => {
                let broke = Fail::Broke(Rule::Capset, index.into(), Resp::ErrParameter);
                return Err(broke);
            }
        };
        let words = [told.id, told.version, told.size, 0];
        let body = words.into_iter().flat_map(u32::to_le_bytes).collect();
        Work::answer(Resp::OkCapsetInfo, body)
    }

    fn capset(&mut self, env: &Env<'_>, id: u32, version: u32) -> Result<Work, Fail> {
        let told = env.faults.capsets.iter().map(|(_, capset)| capset);
        let mut known = told.chain(&self.config.capsets);
        let broke = Fail::Broke(Rule::Capset, id.into(), Resp::ErrParameter);
        let found = known
            .find(|capset| capset.id == id && version <= capset.version)
            .ok_or(broke)?;
        let bytes = found.size.min(CAPSET_MAX) as usize;
        let body = (0..bytes).map(|at| Capset::byte(id, version, at)).collect();
        Work::answer(Resp::OkCapset, body)
    }

    /// Checks that an id is free, also in the window, and that there may be one more.
    fn check_new(&self, id: u32) -> Result<(), Fail> {
        let mapped = self.window.find(id).is_some();
        if id == 0 || mapped || self.resources.contains_key(&id) {
            let broke = Fail::Broke(Rule::ResourceExists, id.into(), Resp::ErrResource);
            return Err(broke);
        }
        if self.resources.len() >= OBJECTS_MAX {
            return Err(Fail::Refused(Resp::ErrOutOfMemory));
        }
        Ok(())
    }

    /// Takes in a resource, if there is room for it.
    fn insert(&mut self, id: u32, resource: Resource) -> Result<Work, Fail> {
        let bytes = self.bytes.checked_add(resource.host_bytes());
        let entries = self.entries + resource.entries();
        match bytes {
            Some(bytes) if bytes <= self.config.memory && entries <= ENTRIES_MAX => {
                self.bytes = bytes;
                self.entries = entries;
                self.resources.insert(id, resource);
                Work::nothing()
            }
            _ => Err(Fail::Refused(Resp::ErrOutOfMemory)),
        }
    }

    fn create(&mut self, command: Cmd, id: u32, f: &mut Fields<'_>) -> Result<Work, Fail> {
        self.check_new(id)?;
        f.u32();
        let resource = if command == Cmd::ResourceCreate2d {
            let format = f.u32();
            let extent = Extent {
                width: f.u32(),
                height: f.u32(),
                depth: 1,
                layers: 1,
                last_level: 0,
            };
            Resource::new(Shape::Flat, format, 0, extent)?
        } else {
            let (target, format, _bind) = (f.u32(), f.u32(), f.u32());
            let extent = Extent {
                width: f.u32(),
                height: f.u32(),
                depth: f.u32(),
                layers: f.u32(),
                last_level: f.u32(),
            };
            Resource::new(Shape::Texture, format, target, extent)?
        };
        self.insert(id, resource)
    }

    fn create_blob(
        &mut self,
        env: &Env<'_>,
        reader: &mut Reader<'_>,
        header: &Header,
        id: u32,
        f: &mut Fields<'_>,
    ) -> Result<Work, Fail> {
        f.u32();
        let (mem, flags, entries) = (f.u32(), f.u32(), f.u32());
        let (_blob_id, bytes) = (f.u64(), f.u64());
        self.check_new(id)?;
        let broke = |rule| Fail::Broke(rule, id.into(), Resp::ErrParameter);
        if !matches!(mem, blob::GUEST | blob::HOST3D | blob::HOST3D_GUEST)
            || flags & !blob::FLAGS != 0
        {
            return Err(broke(Rule::CommandField));
        }
        let aligned = !env.features.contains(Features::BLOB_ALIGNMENT)
            || bytes % u64::from(self.config.blob_alignment) == 0;
        if bytes == 0 || !aligned {
            return Err(broke(Rule::BlobSize));
        }
        if mem != blob::GUEST {
            self.context(header.ctx_id)?;
        }
        // Pages of the guest, if and only if it is a blob that has them.
        if (mem == blob::HOST3D) != (entries == 0) {
            return Err(broke(Rule::Backing));
        }
        let backing = Backing::read(reader, env.memory, entries)?;
        if mem != blob::HOST3D && backing.bytes() < bytes {
            return Err(broke(Rule::Backing));
        }
        let backing = (entries != 0).then_some(backing);
        self.insert(id, Resource::blob(mem, flags, bytes, backing))
    }

    fn unref(&mut self, id: u32) -> Result<Work, Fail> {
        self.resource(id)?;
        let mapping = self.window.find(id);
        if let Some((offset, mapping)) = mapping.filter(|(_, mapping)| !mapping.unmapping) {
            debug_assert_eq!(mapping.resource, id);
            self.window.finish_unmap(offset, None);
            let broke = Fail::Broke(Rule::UnrefMapped, id.into(), Resp::ErrUnspec);
            return Err(broke);
        }
        if let Some(resource) = self.resources.remove(&id) {
            self.bytes -= resource.host_bytes();
            self.entries -= resource.entries();
        }
        for context in self.contexts.values_mut() {
            context.resources.remove(&id);
        }
        Work::nothing()
    }

    fn attach(
        &mut self,
        env: &Env<'_>,
        reader: &mut Reader<'_>,
        id: u32,
        entries: u32,
    ) -> Result<Work, Fail> {
        let resource = self.resource(id)?;
        let broke = Fail::Broke(Rule::Backing, id.into(), Resp::ErrUnspec);
        if resource.backing.is_some() || entries == 0 {
            return Err(broke);
        }
        let backing = Backing::read(reader, env.memory, entries)?;
        let total = self.entries + backing.entries();
        if total > ENTRIES_MAX {
            return Err(Fail::Refused(Resp::ErrOutOfMemory));
        }
        self.resource(id)?.backing = Some(backing);
        self.entries = total;
        Work::nothing()
    }

    fn create_context(
        &mut self,
        env: &Env<'_>,
        id: u32,
        name: u32,
        init: u32,
    ) -> Result<Work, Fail> {
        let broke = |rule| Fail::Broke(rule, id.into(), Resp::ErrParameter);
        if id == 0 || self.contexts.contains_key(&id) {
            return Err(broke(Rule::ContextExists));
        }
        if name > NAME_MAX || init & !CAPSET_MASK != 0 {
            return Err(broke(Rule::CommandField));
        }
        if init != 0 && !env.features.contains(Features::CONTEXT_INIT) {
            return Err(broke(Rule::FeatureMissing));
        }
        if init != 0 && !self.config.capsets.iter().any(|c| c.id == init) {
            // With a fault that tells of others, it is not the driver's mistake.
            return Err(if env.faults.capsets.is_empty() {
                broke(Rule::Capset)
            } else {
                Fail::Refused(Resp::ErrParameter)
            });
        }
        if self.contexts.len() >= OBJECTS_MAX {
            return Err(Fail::Refused(Resp::ErrOutOfMemory));
        }
        let context = Context {
            resources: BTreeSet::new(),
            capset: init,
        };
        self.contexts.insert(id, context);
        Work::nothing()
    }

    fn transfer(
        &mut self,
        env: &mut Env<'_>,
        id: u32,
        transfer: &Transfer,
        direction: Direction,
    ) -> Result<Work, Fail> {
        let resource = self.resource(id)?;
        let blob = matches!(resource.shape, Shape::Blob(..));
        if resource.backing.is_none() && !blob {
            return Err(Fail::Broke(Rule::Backing, id.into(), Resp::ErrUnspec));
        }
        let moved = resource.transfer(env.memory, transfer, direction)?;
        env.record.bytes[usize::from(direction == Direction::FromHost)] += moved;
        Work::nothing()
    }

    fn submit(
        &mut self,
        env: &Env<'_>,
        reader: &mut Reader<'_>,
        ctx: u32,
        size: u32,
    ) -> Result<Work, Fail> {
        let unknown = self.unknown_context(ctx);
        let mut machine = Submission {
            memory: env.memory,
            context: self.contexts.get(&ctx).ok_or(unknown)?,
            resources: &mut self.resources,
            window: &self.window,
        };
        let took = stream::run(reader, size, &mut machine)?;
        Ok(Work {
            took,
            ..Work::nothing()?
        })
    }

    fn map(&mut self, env: &Env<'_>, id: u32, offset: u64) -> Result<Work, Fail> {
        let broke = Fail::Broke(Rule::Map, id.into(), Resp::ErrParameter);
        let alignment = if env.features.contains(Features::BLOB_ALIGNMENT) {
            self.config.blob_alignment.into()
        } else {
            PAGE
        };
        let mapped = self.window.find(id).is_some();
        let resource = self.resource(id)?;
        let mappable = matches!(
            resource.shape,
            Shape::Blob(mem, flags) if mem != blob::GUEST && flags & blob::MAPPABLE != 0
        );
        if !mappable || mapped || offset % alignment != 0 {
            return Err(broke);
        }
        if let Some(resource) = self.resources.get_mut(&id) {
            self.window.map(id, resource, offset)?;
        }
        let words = [self.config.map_cache, 0];
        let body = words.into_iter().flat_map(u32::to_le_bytes).collect();
        Work::answer(Resp::OkMapInfo, body)
    }

    fn unmap(&mut self, id: u32) -> Result<Work, Fail> {
        self.resource(id)?;
        let mapping = self.window.find(id).filter(|(_, m)| !m.unmapping);
        let broke = Fail::Broke(Rule::Map, id.into(), Resp::ErrParameter);
        let (offset, _) = mapping.ok_or(broke)?;
        self.window.begin_unmap(offset);
        Ok(Work {
            finish: Finish::Unmapped(offset),
            ..Work::nothing()?
        })
    }
}

/// Checks the fields that all commands have.
fn check_header(header: &Header, features: Features) -> Result<(), Fail> {
    let broke = |rule, info: u64| Err(Fail::Broke(rule, info, Resp::ErrParameter));
    if header.flags & !(flag::FENCE | flag::RING_IDX) != 0 || header.padding != [0; 3] {
        return broke(Rule::CommandField, header.flags.into());
    }
    if header.flags & flag::RING_IDX == 0 {
        return Ok(());
    }
    if !features.contains(Features::CONTEXT_INIT) {
        return broke(Rule::FeatureMissing, header.flags.into());
    }
    if header.ring_idx >= MAX_RINGS {
        return broke(Rule::Fence, header.ring_idx.into());
    }
    Ok(())
}
