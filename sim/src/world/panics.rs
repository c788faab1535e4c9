//! Panics of the code that is simulated: tasks catch them, and a history is to fail by them.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static WATCHED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static INSTALLED: Once = Once::new();

/// Notes panics of this thread, and keeps them off the terminal.
pub struct Watch(());

impl Watch {
    pub fn begin() -> Watch {
        INSTALLED.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                let is_noted = WATCHED.with_borrow_mut(|noted| {
                    noted.as_mut().map(|noted| noted.push(panic.to_string())).is_some()
                });
                if !is_noted {
                    before(panic);
                }
            }));
        });
        WATCHED.set(Some(Vec::new()));
        Watch(())
    }

    /// The first one.
    pub fn end(self) -> Option<String> {
        WATCHED.take()?.into_iter().next()
    }
}
