//! The sockets that processes poll: a file `dynolog` in a folder, or the abstract name of
//! the dynolog daemon.
//!
//! The kernel says who sent a datagram, in our numbering of processes, so a process in a
//! container is known by its right number, and nobody speaks for another.

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

/// The daemon's name; in the abstract namespace the closing zero is a part of it.
const NAME: &str = "dynolog";
/// What the processes' own sockets are called, before a UUID of 36 characters.
pub(super) const CLIENT: &str = "dynoconfigclient";
/// The longest folder in which the name of a process's socket fits an address of 108
/// bytes (unix(7)): `/`, its name, and a closing zero beside it.
pub const LONGEST_FOLDER: usize = 107 - 1 - CLIENT.len() - 36;

/// Sender of a datagram, as the kernel names it.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Never unnamed.
    pub(super) address: UnixAddr,
}

/// A datagram as it came.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) endpoint: usize,
    /// `None` for a datagram that nobody answers for: its socket has no name, its sender lives
    /// in a numbering of processes that we do not see, or it passes more than its credentials.
    pub(super) sender: Option<Sender>,
    pub(super) bytes: Vec<u8>,
    pub(super) at: Instant,
    /// It may have waited for longer than its sender.
    pub(super) is_stale: bool,
}

/// A socket that is listened at.
#[derive(Debug)]
pub(super) struct Endpoint {
    socket: Arc<UnixDatagram>,
    /// The file and its inode, where it has one.
    file: Option<(PathBuf, u64)>,
    is_over: Arc<AtomicBool>,
}

/// Time after which a sender is taken to have stopped waiting; it waits for 90 ms.
const PATIENCE: Duration = Duration::from_millis(80);
/// How long to listen before looking whether the end has come.
const LISTEN: Duration = Duration::from_millis(50);

impl Endpoint {
    /// Listens in a folder. A socket left behind by a daemon that is gone is replaced.
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

    /// Listens at dynolog's abstract name; `None` where another daemon does.
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

    /// Sends on what is heard, from a thread of its own.
    pub(super) fn listen(&self, number: usize, heard: SyncSender<Heard>) {
        let (socket, is_over) = (Arc::clone(&self.socket), Arc::clone(&self.is_over));
        thread::spawn(move || {
            let mut buffer = vec![0_u8; LARGEST];
            let mut since = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                let received = receive(&socket, &mut buffer);
                let at = Instant::now();
                // Where more time has gone by than listening takes (we were stopped, the
                // machine is overloaded), it may have lain there for as long.
                let is_stale = at.duration_since(since) > PATIENCE;
                since = at;
                let Ok((length, sender)) = received else { continue };
                let told = Heard { endpoint: number, sender, bytes: buffer[..length].to_vec(), at, is_stale };
                if heard.send(told).is_err() {
                    return;
                }
            }
        });
    }

    /// Answers; a process that does not take it is not waited for.
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
    /// A socket's file without a listener makes every process that polls it wait at its
    /// end; no file does not.
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
    // An error where other control messages (open files) came along. The sender's own word must
    // never replace the kernel's.
    let credentials = message.cmsgs().ok().and_then(|mut all| {
        all.find_map(|one| match one {
            ControlMessageOwned::ScmCredentials(sender) => Some(sender),
            _ => None,
        })
    });
    // The address of an unnamed socket has length 0, which nix must not be asked to decode.
    let address = message.address.filter(|address| address.len() as usize > size_of::<nix::libc::sa_family_t>());
    let sender = credentials.zip(address).and_then(|(credentials, address)| {
        let pid = u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0)?;
        Some(Sender { pid, uid: credentials.uid(), address })
    });
    Ok((message.bytes, sender))
}

/// The sender's name as `/proc/net/unix` shows it.
pub(super) fn shown(address: &UnixAddr) -> Option<String> {
    if let Some(path) = address.path() {
        return Some(path.display().to_string());
    }
    address.as_abstract().map(|name| format!("@{}", String::from_utf8_lossy(name).trim_end_matches('\0')))
}

/// The sockets of processes that poll somewhere, as `/proc/net/unix` shows them.
pub(super) fn polling() -> Vec<String> {
    let Ok(table) = std::fs::read_to_string("/proc/net/unix") else { return Vec::new() };
    names(&table)
}

/// The inodes of those sockets, by which a process's own are known.
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
        // Number, references, protocol, flags, type, state, inode, and the name.
        let (mut inode, mut rest) = ("", line);
        for _ in 0..7 {
            (inode, rest) = rest.trim_start().split_once(' ')?;
        }
        let name = rest.trim_start().trim_end_matches('@');
        let last = name.rsplit(['/', '@']).next()?;
        last.starts_with(CLIENT).then_some((inode, name))
    })
}

/// Removes the sockets of processes that have ended. They leave them behind.
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
        // Open files beside the credentials leave no room for these.
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
