#![forbid(unsafe_code)]
//! Opening a device: its context, what serves it, and its first addresses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Condvar, RwLock};

use super::books::Books;
use super::fence::Spares;
use super::front::Front;
use super::pages::Pages;
use super::{Device, Growing, Store};
use crate::driver::{Context, Driver};
use crate::error::{Error, sentence};
use crate::heap::PageRun;
use crate::options::{Backing, Options};
use crate::owners::Owners;
use crate::size::align_up;
use crate::streams::Home;
use crate::sync::Lock;
use crate::types::{Address, DeviceId, PoolId};

/// The least that a page holds, and what segments are rounded to, in bytes.
pub(super) const SEGMENT_UNIT: u64 = 2 << 20;
/// The least range of addresses that is asked for at first, in bytes, unless a program says less.
const LEAST_FIRST_RANGE: u64 = 64 << 30;
/// The least that a refused reservation is halved to, in bytes.
const LEAST_RANGE: u64 = 64 << 20;

impl Device {
    /// Starts to use a device: takes a reference on its primary context, and keeps it for ever.
    pub(crate) fn open(
        driver: &'static Driver,
        owners: &'static Owners,
        id: DeviceId,
        options: Options,
        limit: u64,
    ) -> Result<Self, Error> {
        let total = driver.device_total(id)?;
        let store = Self::store_for(driver, id, &options)?;
        let shows_free_memory = !driver.shares_host_memory(id)?;
        let home = Self::retain(driver, id)?;
        let calls = AtomicU64::new(0);
        let opened = (|| {
            let _inside = driver.enter(Context(home.context), id, &calls)?;
            let Store::Pages(page) = store else { return Ok((store, None)) };
            match reserve(driver, first_range(&options, total, page), page)? {
                Some(range) => Ok((store, Some(range))),
                None => Ok((Store::Segments, None)),
            }
        })();
        let release = |_: &Error| {
            let _ = driver.primary_release(id);
        };
        let (store, range) = opened.inspect_err(release)?;
        let device = Self::with_context(driver, owners, (id, home), store, options)
            .inspect_err(|_| {
                if let Some((start, bytes)) = range {
                    let _ = driver.address_free(start.0, bytes);
                }
            })
            .inspect_err(release)?;
        let device = Self { total, shows_free_memory, calls, ..device };
        device.books.lock().stats.limit = limit;
        if let Some((start, bytes)) = range {
            // What fails here gives the addresses back itself.
            device.add_range(PoolId::DEFAULT, start, bytes).inspect_err(release)?;
        }
        Ok(device)
    }

    /// A device of this context, with no memory yet.
    fn with_context(
        driver: &'static Driver,
        owners: &'static Owners,
        (id, home): (DeviceId, Home),
        store: Store,
        options: Options,
    ) -> Result<Self, Error> {
        let page = match store {
            Store::Pages(page) => page,
            Store::Segments => SEGMENT_UNIT,
        };
        let books = Books::new(page, home)?;
        Ok(Self {
            id,
            driver,
            owners,
            options,
            store,
            total: 0,
            shows_free_memory: true,
            calls: AtomicU64::new(0),
            captures: AtomicU32::new(0),
            looks: AtomicBool::new(false),
            looking: Lock::new(()),
            growth: Lock::new(Growing {
                pages: Pages::new(page),
                stuck: Default::default(),
                graves: Default::default(),
                waiting: 0,
            }),
            returned: Condvar::new(),
            recording: Lock::new(()),
            whole_context: RwLock::new(()),
            books: Lock::new(books),
            spares: Lock::new(Spares::default()),
            front: Front::new(),
        })
    }

    /// What would serve a device: pages where it can and is not told otherwise.
    pub(crate) fn store_for(
        driver: &Driver,
        id: DeviceId,
        options: &Options,
    ) -> Result<Store, Error> {
        let able = driver.has_virtual_memory(id)?;
        match options.backing {
            _ if !options.caching => Ok(Store::Segments),
            Backing::Pages if !able => Err(Error::NotSupported(sentence!(
                "backing:pages needs virtual memory management, which device {} or its driver \
                 does not have: use backing:auto or backing:segments",
                id.0
            ))),
            Backing::Auto | Backing::Pages if able => {
                Ok(Store::Pages(driver.granularity(id)?.max(SEGMENT_UNIT)))
            }
            _ => Ok(Store::Segments),
        }
    }

    /// What serves this device.
    pub(crate) fn store(&self) -> Store {
        self.store
    }

    /// Makes addresses that the driver reserved part of a pool; gives them back if that fails.
    fn add_range(&self, pool: PoolId, start: Address, bytes: u64) -> Result<(), Error> {
        let added = self
            .owners
            .set(start, bytes, self.id, pool)
            .and_then(|()| self.books.lock().pools[pool].heap.add_range(start, bytes));
        if added.is_err() {
            let _ = self.driver.address_free(start.0, bytes);
        }
        added
    }

    /// More addresses for a pool, enough for a block of `bytes`; `None` if the driver has none.
    pub(super) fn reserve_more(&self, pool: PoolId, bytes: u64) -> Result<Option<PageRun>, Error> {
        let Store::Pages(page) = self.store else { return Ok(None) };
        let least = align_up(bytes, page);
        let wanted = first_range(&self.options, self.total, page).max(least);
        match reserve_down_to(self.driver, wanted, least.max(LEAST_RANGE.min(wanted)), page)? {
            None => Ok(None),
            Some((start, bytes)) => {
                self.add_range(pool, start, bytes)?;
                Ok(Some(PageRun { address: start, bytes }))
            }
        }
    }
}

/// How many addresses to ask for at first, in bytes.
fn first_range(options: &Options, total: u64, page: u64) -> u64 {
    match options.address_range {
        Options::AUTO => align_up(total.saturating_mul(4).clamp(LEAST_FIRST_RANGE, 1 << 46), page),
        bytes => align_up(bytes.min(1 << 47), page),
    }
}

/// Reserves `bytes` of addresses, or half of it, and so on; `None` if the driver gives none.
fn reserve(driver: &Driver, bytes: u64, page: u64) -> Result<Option<(Address, u64)>, Error> {
    reserve_down_to(driver, bytes, LEAST_RANGE.min(bytes), page)
}

fn reserve_down_to(
    driver: &Driver,
    mut bytes: u64,
    least: u64,
    page: u64,
) -> Result<Option<(Address, u64)>, Error> {
    loop {
        match driver.address_reserve(bytes, page) {
            Ok(start) => return Ok(Some((Address(start), bytes))),
            Err(error) if matches!(Error::from(error), Error::Shutdown) => return Err(error.into()),
            Err(_) if bytes <= least => return Ok(None),
            Err(_) => bytes = align_up(bytes / 2, page).max(least),
        }
    }
}
