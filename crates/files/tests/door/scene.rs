//! A line door on a loopback port over a scene of the files, and a second door whose clients are in its way.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use forebay_files::{OpenFile, Share};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use types::FileId;

use crate::files_scene::{FOREIGN, FakeRecaller, LONG, OTHER_DOOR, Scene};
use crate::line_door::LineDoor;

/// The files are those of the scene that it stands on.
pub struct DoorScene {
    scene: Scene,
    /// Its clients give back when the test does it for them.
    pub other: Arc<FakeRecaller>,
    address: std::net::SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
}

impl DoorScene {
    pub async fn set(patience: Duration) -> DoorScene {
        let scene = Scene::set().await;
        let other = FakeRecaller::attach(&scene.files, OTHER_DOOR, false);
        let (files, namespace) = (scene.files.clone(), scene.namespace.clone());
        let door = LineDoor::register(files, namespace, scene.caller.clone(), patience).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(Arc::new(door).serve(listener));
        DoorScene { scene, other, address, serving }
    }

    pub async fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.address).await.unwrap()))
    }

    /// A client of the other door opens the file.
    pub async fn open(&self, text: &str, share: Share) -> OpenFile {
        let file = self.found(text).await.unwrap().file;
        self.files.open(file, FOREIGN, share).await.unwrap().0
    }

    /// A client of the other door gets a delegation of the file.
    pub async fn delegate(&self, text: &str) -> FileId {
        let file = self.found(text).await.unwrap().file;
        self.files.delegate_reading(file, FOREIGN).unwrap();
        file
    }

    /// How many files without a name there are, and how many of them nobody held.
    pub async fn count_reaped(&self) -> (usize, usize) {
        (self.orphans().await.len(), self.reap().await.len())
    }
}

impl Deref for DoorScene {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl Drop for DoorScene {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A client of the line door.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(LONG, self.0.read_line(&mut line)).await.unwrap().unwrap();
        line.trim_end().to_owned()
    }

    pub async fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\n")).await;
        self.line().await
    }

    pub async fn put(&mut self, path: &str, bytes: &[u8]) -> String {
        self.send(format!("PUT {path} {}\n", bytes.len())).await;
        self.send(bytes).await;
        self.line().await
    }

    /// The bytes, or the word in their place.
    pub async fn get(&mut self, path: &str) -> Result<Vec<u8>, String> {
        let answer = self.ask(&format!("GET {path}")).await;
        let Some(length) = answer.strip_prefix("OK ") else { return Err(answer) };
        let mut bytes = vec![0; length.parse().unwrap()];
        tokio::time::timeout(LONG, self.0.read_exact(&mut bytes)).await.unwrap().unwrap();
        Ok(bytes)
    }
}
