//! Buffers that CUPTI fills with records.
//!
//! At most [`MOST`] buffers of [`SIZE`] bytes exist. If all are in use, CUPTI gets none, drops records and counts them:
//! the program never waits.
#![expect(unsafe_code, reason = "memory that goes to C and comes back; every block says why it is sound")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::collect::{Collected, LONGEST_NAME, launches_work};
use crate::{library, record, system};

/// Bytes of a buffer: about 15,000 kernels.
pub const SIZE: usize = 4 << 20;
/// Most buffers.
pub const MOST: usize = 16;

/// Free buffers, and the number that CUPTI holds.
struct Pool {
    free: Vec<Box<[u64]>>,
    lent: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), lent: 0 });
/// Collects the records while a window is open.
static SINK: Mutex<Option<Collected>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts collecting records.
pub fn open() {
    *locked(&SINK) = Some(Collected::default());
}

/// Stops collecting, and frees unused buffers.
pub fn close() -> Collected {
    locked(&POOL).free = Vec::new();
    locked(&SINK).take().unwrap_or_default()
}

/// Whether the collection is full.
pub fn is_full() -> bool {
    locked(&SINK).as_ref().is_some_and(Collected::is_full)
}

/// Whether CUPTI has delivered a record of GPU work.
pub fn have_work() -> bool {
    locked(&SINK).as_ref().is_some_and(|collected| !collected.work.is_empty())
}

impl Pool {
    fn lend(&mut self) -> Option<Box<[u64]>> {
        let buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None if self.lent < MOST => {
                let mut buffer: Vec<u64> = Vec::new();
                buffer.try_reserve_exact(SIZE / 8).ok()?;
                buffer.resize(SIZE / 8, 0);
                buffer.into_boxed_slice()
            }
            None => return None,
        };
        self.lent += 1;
        Some(buffer)
    }
}

/// Called by CUPTI to request a buffer.
///
/// # Safety
/// Each address is null or points to a variable of the caller's.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    if buffer.is_null() || size.is_null() || most_records.is_null() {
        return;
    }
    let lent = if system::is_at_home() { catch_unwind(|| locked(&POOL).lend()).ok().flatten() } else { None };
    // 64-bit numbers, because CUPTI needs buffers aligned to 8 bytes.
    let address = lent.map_or(std::ptr::null_mut(), |lent| Box::into_raw(lent).cast::<u8>());
    // SAFETY: the caller's promise; none of them is null.
    unsafe {
        *buffer = address;
        *size = if address.is_null() { 0 } else { SIZE };
        *most_records = 0;
    }
}

/// Called by CUPTI to return a buffer.
///
/// # Safety
/// `buffer` is null or comes from [`requested`], and nothing else uses it any more.
pub unsafe extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, size: usize, filled: usize) {
    if buffer.is_null() || size != SIZE || !system::is_at_home() {
        return;
    }
    // A panic of ours must not reach the program.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let (Ok(cupti), Some(sink)) = (library::cupti(), locked(&SINK).as_mut()) {
            // SAFETY: the names belong to records that CUPTI has just returned, and CUPTI owns them.
            let mut text = |address: usize| unsafe { system::text(address, LONGEST_NAME) };
            let mut launches = |driver, function| launches_work(cupti.function(driver, function).as_bytes());
            let mut each = |bytes: &[u8]| {
                if let Some(record) = record::read(bytes) {
                    sink.take(record, &mut text, &mut launches);
                }
            };
            // SAFETY: CUPTI has just returned the buffer with `filled` bytes in it.
            unsafe { cupti.records(buffer, filled.min(size), &mut each) };
        }
    }));
    #[expect(clippy::cast_ptr_alignment, reason = "it was made as a box of 64-bit numbers")]
    let slice = std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), SIZE / 8);
    // SAFETY: address and size are those of a box from `requested`, and CUPTI does not use it any more.
    let buffer = unsafe { Box::from_raw(slice) };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let mut pool = locked(&POOL);
        pool.lent = pool.lent.saturating_sub(1);
        if pool.free.len() < MOST && locked(&SINK).is_some() {
            pool.free.push(buffer);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_buffers_and_no_more() {
        let mut pool = Pool { free: Vec::new(), lent: 0 };
        let lent: Vec<_> = std::iter::from_fn(|| pool.lend()).collect();
        assert_eq!(lent.len(), MOST);
        assert!(lent.iter().all(|buffer| buffer.len() * 8 == SIZE));
        pool.free.extend(lent.into_iter().take(1));
        pool.lent -= 1;
        assert!(pool.lend().is_some() && pool.lend().is_none());
    }

    #[test]
    fn a_stranger_gets_no_buffer() {
        // This test has not called `settle`, so the process counts as a child.
        let (mut buffer, mut size, mut most) = (std::ptr::dangling_mut(), 1, 1);
        // SAFETY: these are variables of this frame, and no buffer is returned.
        unsafe {
            requested(&raw mut buffer, &raw mut size, &raw mut most);
            assert!(buffer.is_null() && size == 0 && most == 0);
            completed(std::ptr::null_mut(), 0, buffer, 0, 0);
        }
    }
}
