//! The sockets that processes poll: a file `dynolog` in a folder, or the abstract name of the dynolog daemon.
//!
//! The kernel reports the sender of a datagram, by its id in our namespace. A process in a container is therefore
//! identified correctly, and none can impersonate another.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike, UnixAddr, UnixCredentials, recvmsg, sendto, setsockopt,
};

use super::error::AttachError;
use super::wire::LARGEST;

/// Name of the daemon; in the abstract namespace it includes the closing zero.
const NAME: &str = "dynolog";
/// Prefix of the names of the processes' own sockets, followed by a UUID of 36 characters.
pub(super) const CLIENT: &str = "dynoconfigclient";
/// Maximum length of a folder so that the name of a process's socket fits into an address of 108 bytes (unix(7)), with
/// `/` before it and a closing zero.
pub const LONGEST_FOLDER: usize = 107 - 1 - CLIENT.len() - 36;

/// Sender of a datagram, as the kernel reports it.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Address; never unnamed.
    pub(super) address: UnixAddr,
}

/// A received datagram.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) endpoint: usize,
    /// `None` for a datagram that cannot be attributed: its socket has no name, its sender is in a process namespace
    /// invisible to us, or it carries more than its credentials.
    pub(super) sender: Option<Sender>,
    pub(super) bytes: Vec<u8>,
    pub(super) at: Instant,
    /// Whether it may have waited longer than its sender does.
    pub(super) is_stale: bool,
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Endpoint {
    socket: Arc<UnixDatagram>,
    /// Path and inode of the socket's file, if it has one.
    file: Option<(PathBuf, u64)>,
    is_over: Arc<AtomicBool>,
}

/// Time after which a sender is assumed to have stopped waiting; it waits for 90 ms.
const PATIENCE: Duration = Duration::from_millis(80);
/// Interval for checking whether to stop listening.
const LISTEN: Duration = Duration::from_millis(50);

impl Endpoint {
    /// Listens in a folder. Replaces a socket left behind by a dead daemon.
    pub(super) fn in_folder(folder: &Path) -> Result<Self, AttachError> {
        let path = folder.join(NAME);
        let failed = |source| AttachError::Socket { path: path.clone(), source };
        if path.exists() {
            let probe = UnixDatagram::unbound().map_err(failed)?;
            match probe.connect(&path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(&path).map_err(failed)?;
                }
                Ok(()) => return Err(AttachError::Taken { folder: folder.to_owned() }),
                Err(error) => return Err(failed(error)),
            }
        }
        let socket = UnixDatagram::bind(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => AttachError::Taken { folder: folder.to_owned() },
            _ => failed(error),
        })?;
        let inode = std::fs::metadata(&path).map_err(failed)?.ino();
        Self::new(socket, Some((path.clone(), inode))).map_err(failed)
    }

    /// Listens at dynolog's abstract name; `None` if another daemon does.
    pub(super) fn at_abstract_name() -> Result<Option<Self>, AttachError> {
        let failed = |source| AttachError::Socket { path: PathBuf::from(format!("@{NAME}")), source };
        let address = SocketAddr::from_abstract_name(format!("{NAME}\0")).map_err(failed)?;
        match UnixDatagram::bind_addr(&address) {
            Ok(socket) => Self::new(socket, None).map(Some).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn new(socket: UnixDatagram, file: Option<(PathBuf, u64)>) -> io::Result<Self> {
        setsockopt(&socket, PassCred, &true)?;
        socket.set_read_timeout(Some(LISTEN))?;
        Ok(Self { socket: Arc::new(socket), file, is_over: Arc::new(AtomicBool::new(false)) })
    }

    /// Forwards received datagrams from a thread of its own.
    pub(super) fn listen(&self, number: usize, heard: SyncSender<Datagram>) {
        let (socket, is_over) = (Arc::clone(&self.socket), Arc::clone(&self.is_over));
        thread::spawn(move || {
            let mut buffer = vec![0_u8; LARGEST];
            let mut since = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                let received = receive(&socket, &mut buffer);
                let at = Instant::now();
                // If more time has passed than listening takes (we were stopped, or the machine is overloaded), the
                // datagram may have waited for as long.
                let is_stale = at.duration_since(since) > PATIENCE;
                since = at;
                let Ok((length, sender)) = received else { continue };
                let told = Datagram { endpoint: number, sender, bytes: buffer[..length].to_vec(), at, is_stale };
                if heard.send(told).is_err() {
                    return;
                }
            }
        });
    }

    /// Sends a reply; does not wait for a process that does not receive it.
    pub(super) fn answer(&self, to: &UnixAddr, bytes: &[u8]) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = sendto(self.socket.as_raw_fd(), bytes, to, flags);
    }

    /// Whether the file is still our socket.
    pub(super) fn is_ours(&self) -> bool {
        self.file.as_ref().is_none_or(|(path, inode)| std::fs::metadata(path).is_ok_and(|there| there.ino() == *inode))
    }
}

impl Drop for Endpoint {
    /// A socket file without a listener makes every polling process wait when it ends; a missing file does not.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if self.is_ours()
            && let Some((path, _)) = &self.file
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn receive(socket: &UnixDatagram, buffer: &mut [u8]) -> nix::Result<(usize, Option<Sender>)> {
    let mut space = cmsg_space!(UnixCredentials);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    // This is an error if other control messages (open files) came along. Credentials claimed by the sender must never
    // replace the kernel's.
    let credentials = message.cmsgs().ok().and_then(|mut all| {
        all.find_map(|one| match one {
            ControlMessageOwned::ScmCredentials(sender) => Some(sender),
            _ => None,
        })
    });
    // The address of an unnamed socket has length 0, which nix must not decode.
    let address = message.address.filter(|address| address.len() as usize > size_of::<nix::libc::sa_family_t>());
    let sender = credentials.zip(address).and_then(|(credentials, address)| {
        let pid = u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0)?;
        Some(Sender { pid, uid: credentials.uid(), address })
    });
    Ok((message.bytes, sender))
}

/// Name of the sender in the notation of `/proc/net/unix`.
pub(super) fn shown(address: &UnixAddr) -> Option<String> {
    if let Some(path) = address.path() {
        return Some(path.display().to_string());
    }
    address.as_abstract().map(|name| format!("@{}", String::from_utf8_lossy(name).trim_end_matches('\0')))
}

/// Names of the sockets of processes that poll anywhere, from `/proc/net/unix`.
pub(super) fn polling() -> Vec<String> {
    let Ok(table) = std::fs::read_to_string("/proc/net/unix") else { return Vec::new() };
    names(&table)
}

/// Inodes of those sockets, which identify a process's own.
pub(super) fn polling_inodes() -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets(&table).filter_map(|(inode, _)| inode.parse().ok()).collect()
}

fn names(table: &str) -> Vec<String> {
    sockets(table).map(|(_, name)| name.to_owned()).collect()
}

/// Inode and name of each.
fn sockets(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().skip(1).filter_map(|line| {
        // Number, references, protocol, flags, type, state, inode, name.
        let (mut inode, mut rest) = ("", line);
        for _ in 0..7 {
            (inode, rest) = rest.trim_start().split_once(' ')?;
        }
        let name = rest.trim_start().trim_end_matches('@');
        let last = name.rsplit(['/', '@']).next()?;
        last.starts_with(CLIENT).then_some((inode, name))
    })
}

/// Removes sockets left behind by processes that have ended.
pub(super) fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(CLIENT)) {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let Ok(probe) = UnixDatagram::unbound() else { return };
        if probe.connect(entry.path()).is_err_and(refused) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn who_speaks_is_told_by_the_kernel_and_answered() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::in_folder(folder.path()).unwrap();
        let (heard, hearing) = mpsc::sync_channel(9);
        endpoint.listen(3, heard);
        let client = UnixDatagram::bind(folder.path().join("dynoconfigclient-me")).unwrap();
        client.send_to(b"hello", folder.path().join("dynolog")).unwrap();
        let told = hearing.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!((told.endpoint, told.bytes.as_slice()), (3, &b"hello"[..]));
        let sender = told.sender.unwrap();
        assert_eq!(sender.pid, std::process::id());
        let from = sender.address;
        assert!(shown(&from).unwrap().ends_with("dynoconfigclient-me"));
        assert!(polling().contains(&shown(&from).unwrap()));
        endpoint.answer(&from, b"back");
        let mut buffer = [0; 10];
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
    }

    /// Any user of the machine can send one to the abstract name.
    #[test]
    fn a_datagram_that_nobody_answers_for_has_no_sender() {
        use nix::sys::socket::{ControlMessage, sendmsg};
        use std::io::IoSlice;
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::in_folder(folder.path()).unwrap();
        let (heard, hearing) = mpsc::sync_channel(9);
        endpoint.listen(0, heard);
        let next = || hearing.recv_timeout(Duration::from_secs(10)).unwrap();
        let place = folder.path().join("dynolog");
        for bytes in [&b""[..], b"x", &[b'x'; LARGEST], &[b'x'; 2 * LARGEST]] {
            UnixDatagram::unbound().unwrap().send_to(bytes, &place).unwrap();
            assert!(next().sender.is_none());
        }
        // Open files passed along leave no room for the credentials.
        let client = UnixDatagram::bind(folder.path().join("dynoconfigclient-me")).unwrap();
        let (to, files) = (UnixAddr::new(&place).unwrap(), [client.as_raw_fd()]);
        let (parts, rights) = ([IoSlice::new(b"hello")], [ControlMessage::ScmRights(&files)]);
        sendmsg(client.as_raw_fd(), &parts, &rights, MsgFlags::empty(), Some(&to)).unwrap();
        assert!(next().sender.is_none());
        client.send_to(b"hello", &place).unwrap();
        assert!(next().sender.is_some());
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        drop(UnixDatagram::bind(folder.path().join("dynolog")).unwrap());
        let endpoint = Endpoint::in_folder(folder.path()).unwrap();
        assert!(matches!(Endpoint::in_folder(folder.path()), Err(AttachError::Taken { .. })));
        assert!(endpoint.is_ours());
        drop(endpoint);
        assert!(!folder.path().join("dynolog").exists(), "nothing is left to wait for");
    }

    #[test]
    fn another_ones_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::in_folder(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("dynolog")).unwrap();
        let _other = UnixDatagram::bind(folder.path().join("dynolog")).unwrap();
        assert!(!endpoint.is_ours());
        drop(endpoint);
        assert!(folder.path().join("dynolog").exists());
    }

    #[test]
    fn sockets_of_the_dead_are_swept_and_of_the_living_not() {
        let folder = tempfile::tempdir().unwrap();
        let living = folder.path().join("dynoconfigclient-living");
        let dead = folder.path().join("dynoconfigclient-dead");
        let _socket = UnixDatagram::bind(&living).unwrap();
        drop(UnixDatagram::bind(&dead).unwrap());
        std::fs::write(folder.path().join("else"), "x").unwrap();
        sweep(folder.path());
        assert!(living.exists() && !dead.exists() && folder.path().join("else").exists());
    }

    #[test]
    fn names_are_found_in_the_kernels_table() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            000000003c13947a: 00000003 00000000 00000000 0001 03 578213\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 11 @dynoconfigclient123@\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 12 /tmp/a b/dynoconfigclient4\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 13 /tmp/dynolog\n";
        assert_eq!(names(table), ["@dynoconfigclient123", "/tmp/a b/dynoconfigclient4"]);
    }
}
