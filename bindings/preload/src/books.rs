//! The **books**: all that is known in the process, under one lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cuddy::mutants::mutant;

use crate::cache::{Aside, Cache};
use crate::doors::Home;
use crate::few::Few;
use crate::process::{mark_child, mark_introduced, settings};
use crate::{fences, pools, report};

/// All that is known in the process.
pub struct Books {
    /// The blocks.
    pub cache: Cache,
    /// Events of ours, by context.
    pub fences: Few<usize, fences::Fences>,
    /// Some thread puts or asks fences, outside of the lock: one at a time.
    pub fences_move: bool,
    /// By the context that owns memory: those whose work may use it too.
    users: Few<usize, Vec<usize>>,
    /// The stream-ordered pools.
    pub pools: pools::Pools,
    /// Row lengths that the driver gave, by width and element size.
    pub pitches: BTreeMap<(usize, u32), usize>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    cache: Cache::new(),
    fences: Few::new(),
    fences_move: false,
    users: Few::new(),
    pools: pools::Pools::new(),
    pitches: BTreeMap::new(),
});

/// The books, for a moment: no driver call is made meanwhile.
pub fn books() -> MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// Takes a context out that may be about to end; its events end with it.
    pub fn set_aside(&mut self, context: usize) -> Option<Aside> {
        self.fences.remove(context);
        self.users.remove(context);
        self.users.values_mut().for_each(|users| users.retain(|user| *user != context));
        self.pools.forget(context);
        if mutant("preload-context-end-unseen") {
            return None;
        }
        self.cache.set_aside(context)
    }

    /// It has not ended.
    pub fn put_back(&mut self, aside: Aside) {
        self.cache.put_back(aside);
    }

    /// Work of `user` may use memory of `owner` from now on.
    pub fn add_user(&mut self, owner: usize, user: usize) {
        let users = self.users.or_insert(owner, Vec::new);
        if !users.contains(&user) {
            users.push(user);
        }
    }

    /// The other contexts whose work may use a context's memory: mostly none.
    pub fn users_of(&self, owner: usize) -> Vec<usize> {
        self.users.get(owner).cloned().unwrap_or_default()
    }
}

/// A context allocates for the first time.
#[cold]
pub fn introduce(home: &Home, context: usize) -> bool {
    static WATCHED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the handler is a function of this library, which is never unloaded, and does one
    // atomic store.
    let watched =
        *WATCHED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(mark_child)) == 0 });
    let (Some(device), Some((_, total))) = (home.device(), home.memory()) else { return false };
    if watched {
        mark_introduced();
        books().cache.introduce(context, device, settings().cap_of(total));
        report::begin();
    }
    watched
}

/// The current context, known to the books.
pub fn context(home: &Home) -> Option<usize> {
    let context = home.current()?;
    let known = books().cache.device_of(context).is_some();
    (known || introduce(home, context)).then_some(context)
}
