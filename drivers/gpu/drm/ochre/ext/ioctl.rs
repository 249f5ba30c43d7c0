// SPDX-License-Identifier: GPL-2.0

//! A driver's own ioctls.
//!
//! C header: [`include/drm/drm_ioctl.h`](srctree/include/drm/drm_ioctl.h)
//!
//! `kernel::declare_drm_ioctls!` knows only types of `kernel::uapi`, allows no gaps in the numbers
//! and holds `drm_dev_enter()` around the handler, where a wait would block the removal of every
//! DRM device. [`drm_ioctl_table!`] takes the driver's own types, and a handler enters the device
//! itself, for as long as it touches the hardware ([`super::drm_drv::Enter`]).
//!
//! The DRM core copies the argument in and out, zero-extends one that is shorter than the kernel's
//! and cuts one that is longer. The handler works on a copy: when it fails, user space gets its
//! argument back as it was.

use core::{
    marker::PhantomData,
    mem::size_of, //
};

use kernel::{
    bindings,
    drm::{
        self,
        ioctl::DrmIoctlDescriptor, //
    },
    ffi::{
        c_int,
        c_void, //
    },
    ioctl::{
        _IOC_NR,
        _IOC_SIZE, //
    },
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// One ioctl, as [`drm_ioctl_table!`] defines it.
pub(crate) trait Ioctl {
    /// The driver whose table it stands in.
    type Driver: drm::Driver;
    /// The argument.
    type Args: FromBytes + AsBytes;

    /// The handler. A number that is returned becomes the result of `ioctl(2)`.
    fn call(
        dev: &drm::Device<Self::Driver, drm::Ioctl>,
        file: &drm::File<<Self::Driver as drm::Driver>::File>,
        args: &mut Self::Args,
    ) -> Result<u32>;
}

/// Defines the ioctls of a driver.
///
/// Each entry is `(command number, argument type, flags, handler)`, in any order and with gaps; the
/// handler is a `fn(&drm::Device<D, drm::Ioctl>, &drm::File<F>, &mut Args) -> Result<u32>`.
///
/// # Examples
///
/// ```ignore
/// const IOCTLS: &'static [drm::ioctl::DrmIoctlDescriptor] = ext::ioctl::drm_ioctl_table! {
///     OchreDriver,
///     (uapi::IOCTL_QUERY, uapi::drm_ochre_query, drm::ioctl::RENDER_ALLOW, query::ioctl),
/// };
/// ```
macro_rules! drm_ioctl_table {
    ($driver:ty, $(($cmd:expr, $args:ty, $flags:expr, $handler:path)),+ $(,)?) => {{
        const ENTRIES: &[::kernel::drm::ioctl::DrmIoctlDescriptor] = &[$({
            struct Entry;

            impl $crate::ext::ioctl::Ioctl for Entry {
                type Driver = $driver;
                type Args = $args;

                fn call(
                    dev: &::kernel::drm::Device<$driver, ::kernel::drm::Ioctl>,
                    file: &::kernel::drm::File<<$driver as ::kernel::drm::Driver>::File>,
                    args: &mut $args,
                ) -> ::kernel::error::Result<u32> {
                    $handler(dev, file, args)
                }
            }

            $crate::ext::ioctl::descriptor::<Entry>(
                $cmd,
                $flags,
                ::kernel::c_str!(::core::stringify!($cmd)),
            )
        }),+];
        const TABLE: [
            ::kernel::drm::ioctl::DrmIoctlDescriptor;
            $crate::ext::ioctl::table_len(ENTRIES)
        ] = $crate::ext::ioctl::table(ENTRIES);
        &TABLE
    }};
}
pub(crate) use drm_ioctl_table;

/// Makes the descriptor of one ioctl. Does not compile if size and type do not match.
pub(crate) const fn descriptor<I: Ioctl>(
    cmd: u32,
    flags: u32,
    name: &'static CStr,
) -> DrmIoctlDescriptor {
    assert!(
        _IOC_SIZE(cmd) == size_of::<I::Args>(),
        "command number and argument type differ in size"
    );
    assert!(
        _IOC_NR(cmd) >= bindings::DRM_COMMAND_BASE && _IOC_NR(cmd) < bindings::DRM_COMMAND_END,
        "command number outside the range for drivers"
    );
    DrmIoctlDescriptor {
        cmd,
        func: Some(dispatch::<I>),
        flags,
        name: kernel::str::as_char_ptr_in_const_context(name),
    }
}

/// How long a table has to be to hold `entries`.
pub(crate) const fn table_len(entries: &[DrmIoctlDescriptor]) -> usize {
    let mut len = 0;
    let mut i = 0;
    while i < entries.len() {
        let end = index(&entries[i]) + 1;
        if end > len {
            len = end;
        }
        i += 1;
    }
    len
}

/// Puts `entries` where DRM looks for them, by number; the gaps are refused with `EINVAL`.
pub(crate) const fn table<const N: usize>(
    entries: &[DrmIoctlDescriptor],
) -> [DrmIoctlDescriptor; N] {
    const GAP: DrmIoctlDescriptor = DrmIoctlDescriptor {
        cmd: 0,
        func: None,
        flags: 0,
        name: core::ptr::null(),
    };
    let mut table = [GAP; N];
    let mut i = 0;
    while i < entries.len() {
        let at = index(&entries[i]);
        assert!(table[at].func.is_none(), "two ioctls have one number");
        table[at] = entries[i];
        i += 1;
    }
    table
}

const fn index(entry: &DrmIoctlDescriptor) -> usize {
    // CAST: Both are numbers of 8 bits.
    (_IOC_NR(entry.cmd) - bindings::DRM_COMMAND_BASE) as usize
}

/// # Safety
///
/// As `drm_ioctl_desc.func`, called for a command whose descriptor [`descriptor`] made.
unsafe extern "C" fn dispatch<I: Ioctl>(
    dev: *mut bindings::drm_device,
    data: *mut c_void,
    file: *mut bindings::drm_file,
) -> c_int {
    // SAFETY: DRM calls this through the table of `I::Driver`, so the device and the file are its
    // own, alive, and the device has been registered.
    let (dev, file) = unsafe {
        (
            drm::Device::<I::Driver, drm::Ioctl>::from_raw(dev),
            drm::File::from_raw(file),
        )
    };

    let data = data.cast::<I::Args>();
    // SAFETY: DRM's buffer has at least the size of the command, which `descriptor` compared, and
    // all of it is initialised. It need not be aligned. Any bytes are a valid value.
    let mut args = unsafe { data.read_unaligned() };

    match I::call(dev, file, &mut args) {
        Ok(value) => {
            // SAFETY: As above; nobody else uses the buffer.
            unsafe { data.write_unaligned(args) };
            c_int::try_from(value).unwrap_or(ERANGE.to_errno())
        }
        Err(error) => error.to_errno(),
    }
}

/// The user pointer that an ABI structure holds as 64 bits.
///
/// Returns [`EFAULT`] when it does not fit this machine's addresses.
pub(crate) fn user_ptr(addr: u64) -> Result<UserPtr> {
    usize::try_from(addr)
        .map(UserPtr::from_addr)
        .map_err(|_| EFAULT)
}

/// `len` bytes at the user pointer `addr`.
pub(crate) fn user_slice(addr: u64, len: usize) -> Result<UserSlice> {
    Ok(UserSlice::new(user_ptr(addr)?, len))
}

/// An array of `T` in user space, its length checked.
pub(crate) struct UserArray<T> {
    addr: u64,
    count: usize,
    _type: PhantomData<T>,
}

impl<T> UserArray<T> {
    /// Describes `count` elements at `addr`. Returns [`EINVAL`] for more than `max`.
    pub(crate) fn new(addr: u64, count: u32, max: u32) -> Result<Self> {
        if count > max {
            return Err(EINVAL);
        }
        let count = usize::try_from(count)?;
        count.checked_mul(size_of::<T>()).ok_or(EINVAL)?;
        Ok(Self {
            addr,
            count,
            _type: PhantomData,
        })
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none; then the pointer is never looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn slice(&self) -> Result<UserSlice> {
        // No overflow: checked in `new`.
        user_slice(self.addr, self.count.wrapping_mul(size_of::<T>()))
    }
}

impl<T: FromBytes> UserArray<T> {
    /// Copies the array in, once: user space may change it at any time. Returns [`EFAULT`] if it
    /// cannot be read.
    pub(crate) fn read_all(&self) -> Result<KVVec<T>> {
        let mut values = KVVec::with_capacity(self.count, GFP_KERNEL_ACCOUNT)?;
        if self.is_empty() {
            return Ok(values);
        }
        let mut reader = self.slice()?.reader();
        let len = reader.len();
        let spare = values.spare_capacity_mut();
        // SAFETY: `spare` is writable memory for at least `self.count` values of `T`, that is `len`
        // bytes, and `MaybeUninit<u8>` may hold anything.
        let bytes = unsafe { core::slice::from_raw_parts_mut(spare.as_mut_ptr().cast(), len) };
        reader.read_raw(bytes)?;
        // SAFETY: The first `self.count` elements are initialised now, with any bytes, which
        // `FromBytes` makes valid; the capacity covers them.
        unsafe { values.inc_len(self.count) };
        Ok(values)
    }
}

impl<T: AsBytes> UserArray<T> {
    /// Copies `values` out, from element `first` on. Returns [`EINVAL`] if they do not fit and
    /// [`EFAULT`] if the array cannot be written.
    pub(crate) fn write(&self, first: usize, values: &[T]) -> Result {
        if first
            .checked_add(values.len())
            .is_none_or(|end| end > self.count)
        {
            return Err(EINVAL);
        }
        let skip = u64::try_from(first.wrapping_mul(size_of::<T>()))?;
        let addr = self.addr.checked_add(skip).ok_or(EFAULT)?;
        user_slice(addr, core::mem::size_of_val(values))?
            .writer()
            .write_slice(values.as_bytes())
    }
}

#[kunit_tests(ochre_ext_ioctl)]
mod tests {
    use super::*;

    fn entry(nr: u32) -> DrmIoctlDescriptor {
        /// # Safety
        ///
        /// None: it does nothing.
        unsafe extern "C" fn nothing(
            _dev: *mut bindings::drm_device,
            _data: *mut c_void,
            _file: *mut bindings::drm_file,
        ) -> c_int {
            0
        }
        DrmIoctlDescriptor {
            cmd: drm::ioctl::IOWR::<u64>(bindings::DRM_COMMAND_BASE + nr),
            func: Some(nothing),
            flags: 0,
            name: core::ptr::null(),
        }
    }

    #[test]
    fn table_is_ordered_by_number_and_its_gaps_have_no_handler() {
        let entries = [entry(4), entry(1)];
        assert_eq!(table_len(&entries), 5);
        let table: [DrmIoctlDescriptor; 5] = table(&entries);
        for (nr, slot) in table.iter().enumerate() {
            assert_eq!(slot.func.is_some(), nr == 1 || nr == 4);
        }
        assert_eq!(table[4].cmd, entries[0].cmd);
        assert_eq!(table[1].cmd, entries[1].cmd);
    }

    #[test]
    fn array_refuses_a_count_beyond_the_limit() -> Result {
        assert_eq!(UserArray::<u64>::new(0, u32::MAX, 16).err(), Some(EINVAL));
        assert_eq!(UserArray::<u64>::new(0, 17, 16).err(), Some(EINVAL));
        assert_eq!(UserArray::<u64>::new(0, 16, 16)?.len(), 16);
        Ok(())
    }

    #[test]
    fn empty_array_does_not_look_at_its_pointer() -> Result {
        assert!(UserArray::<u64>::new(u64::MAX, 0, 16)?
            .read_all()?
            .is_empty());
        Ok(())
    }

    #[test]
    fn kernel_address_is_refused_as_user_memory() -> Result {
        let array = UserArray::<u64>::new(u64::MAX - 4095, 2, 16)?;
        assert_eq!(array.read_all().err(), Some(EFAULT));
        assert_eq!(array.write(0, &[1, 2]).err(), Some(EFAULT));
        Ok(())
    }

    #[test]
    fn write_beyond_the_array_is_refused() -> Result {
        let array = UserArray::<u64>::new(0x1000, 2, 16)?;
        assert_eq!(array.write(1, &[1, 2]).err(), Some(EINVAL));
        assert_eq!(array.write(usize::MAX, &[1]).err(), Some(EINVAL));
        Ok(())
    }
}
