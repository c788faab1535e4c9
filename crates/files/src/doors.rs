//! The doors that share the files: each is registered at the start and gets the number by which the conflict table knows its
//! clients.

use std::sync::Arc;

use file_state::Door;
use parking_lot::Mutex;
use thiserror::Error;

use crate::{Files, Recaller};

/// Every recall goes through the list of doors.
const DOORS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// Holders of two doors under one name could not be told apart by an operator.
    #[error("a door of the name {0} is registered already")]
    Repeated(&'static str),
    #[error("cannot register the door {0}: there are {DOORS_MAX} doors, and there may be no more")]
    TooMany(&'static str),
}

/// Grows at the start only. A door's number is its place.
#[derive(Default)]
pub(crate) struct Doors(Mutex<Vec<Registered>>);

struct Registered {
    name: &'static str,
    /// `None`: clients of the door hold nothing that can be recalled.
    recaller: Option<Arc<dyn Recaller>>,
}

impl Files {
    /// The door of this name, for as long as the files are served. A second registration of a name is an error, for two
    /// doors that number their holders each by itself must not share a number; a door that starts anew does so with new
    /// [`Files`].
    pub fn register(&self, name: &'static str) -> Result<Door, RegisterError> {
        let mut doors = self.doors.0.lock();
        if doors.iter().any(|door| door.name == name) {
            return Err(RegisterError::Repeated(name));
        }
        let number = u8::try_from(doors.len()).ok().filter(|number| usize::from(*number) < DOORS_MAX);
        let door = Door::numbered(number.ok_or(RegisterError::TooMany(name))?);
        doors.push(Registered { name, recaller: None });
        Ok(door)
    }

    /// Recalls of what is held through `door` go to `recaller` from now on. Apart from [`Files::register`], since the
    /// recaller of a door is made of parts that need the door's number.
    ///
    /// # Panics
    ///
    /// If the door is not registered here.
    pub fn recall_through(&self, door: Door, recaller: Arc<dyn Recaller>) {
        let mut doors = self.doors.0.lock();
        let registered = doors.get_mut(usize::from(door.number()));
        registered.expect("a door is made by its registration").recaller = Some(recaller);
    }

    /// The name under which a door was registered, for messages and statistics. It is empty for a door of other files.
    pub fn door_name(&self, door: Door) -> &'static str {
        let doors = self.doors.0.lock();
        doors.get(usize::from(door.number())).map_or("", |registered| registered.name)
    }
}

impl Doors {
    pub fn recaller(&self, door: Door) -> Option<Arc<dyn Recaller>> {
        self.0.lock().get(usize::from(door.number()))?.recaller.clone()
    }

    /// The doors whose clients can be asked to give back.
    pub fn recallers(&self) -> Vec<(Door, Arc<dyn Recaller>)> {
        let doors = self.0.lock();
        let numbered = (0..).map(Door::numbered).zip(doors.iter());
        numbered.filter_map(|(door, of)| Some((door, Arc::clone(of.recaller.as_ref()?)))).collect()
    }
}
