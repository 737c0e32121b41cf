//! Signals, forks and the end of the process, for a library inside another program.
#![expect(unsafe_code, reason = "calls of the C library; every block says why it is sound")]

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;

/// Id of the process that loaded the library; a child has another one.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The socket, which children close.
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// Records the id of this process.
pub fn settle() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Whether this is the process that loaded the library, not a child of it.
pub fn is_at_home() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Sends all of `bytes`, without raising SIGPIPE if the listener is gone.
///
/// # Errors
/// Those of the socket, including its timeout if the listener does not read.
pub fn send(socket: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length are those of one slice, which lives through the call.
        let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if let Ok(sent) = usize::try_from(sent) {
            bytes = bytes.get(sent..).unwrap_or_default();
        } else {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Starts a thread with all signals of the program blocked.
///
/// # Errors
/// If no more threads can start.
pub fn start_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: an all-zero set is a value of this plain C type, filled in before it is read.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: both point to sets of this frame; the mask belongs to this thread and is restored.
    let masked = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    // A new thread inherits the mask of the thread that starts it.
    let started = thread::Builder::new().name("habitat-cupti".to_owned()).stack_size(1 << 20).spawn(work);
    if masked {
        // SAFETY: `before` was filled in by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
    started.map(drop)
}

/// Makes a file beyond the size limit an error in this thread. Otherwise its signal may end the process.
pub fn bear_short_files() {
    // SAFETY: an all-zero set is a value of this plain C type, filled in before it is read.
    let mut one: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is one of this frame, and the mask is this thread's own.
    unsafe {
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const one, std::ptr::null_mut());
    }
}

/// Calls `handler` when the process exits normally.
pub fn at_exit(handler: extern "C" fn()) -> bool {
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::atexit(handler) == 0 }
}

/// Closes the socket in children, so that the listener notices when this process ends.
pub fn close_in_children(socket: Option<RawFd>) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    SOCKET.store(socket.unwrap_or(-1), Ordering::Relaxed);
    ONCE.call_once(|| {
        // SAFETY: closing a descriptor, as the handler does, is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

extern "C" fn forked() {
    let socket = SOCKET.swap(-1, Ordering::Relaxed);
    if socket >= 0 {
        // SAFETY: a descriptor of this library that the child does not use any more.
        unsafe { libc::close(socket) };
    }
}

/// The C string at an address, to its end or `longest` bytes.
///
/// # Safety
/// The address is 0 or that of a C string that lives through the call.
pub unsafe fn text(address: usize, longest: usize) -> Option<Vec<u8>> {
    let start = address as *const c_char;
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; reading stops at the closing zero.
    let length = unsafe { libc::strnlen(start, longest) };
    // SAFETY: these bytes were just read.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) };
    let mut text = Vec::new();
    text.try_reserve_exact(length).ok()?;
    text.extend_from_slice(bytes);
    Some(text)
}

/// A library that stays loaded.
#[derive(Debug, Clone, Copy)]
pub struct Library(usize);

impl Library {
    /// Loads a library; `None` if that fails.
    pub fn load(path: &CStr) -> Option<Self> {
        // SAFETY: the path is a C string. Loading runs the library's initialisation, as the callers intend: they only
        // load NVIDIA's libraries.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle as usize))
    }

    /// The address of a function.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle comes from `dlopen` and is never closed, `name` is a C string.
        let address = unsafe { libc::dlsym(self.0 as *mut c_void, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}
