// SPDX-License-Identifier: Apache-2.0
//! Two published prefix indexes behind `struct subject` of tests/bench/index/bench.h, so that the benchmark of ours plays them the same
//! workloads with the same clock.  Layouts below are that header's and tests/lib/kvbatch.h's: keep them alike.
#![allow(clippy::missing_safety_doc)]

mod dynamo;
mod kv_index_chain;

use std::ffi::{c_char, c_void};

#[repr(C)]
pub struct Item {
    pub parent: u64,
    pub parent_chain: u64,
    pub at: u64,
    pub n: u32,
    pub kind: u32,
    pub worker: u32,
    pub tier: u32,
    pub group: u32,
    pub has_parent: u32,
}

pub const STORED: u32 = 0;

#[repr(C)]
pub struct Batch {
    item: *const Item,
    local: *const u64,
    engine: *const u64,
    chain: *const u64,
    n_items: usize,
    cap_items: usize,
    n: usize,
    cap: usize,
    opaque: bool,
}

impl Batch {
    pub unsafe fn items(&self) -> &[Item] {
        std::slice::from_raw_parts(self.item, self.n_items)
    }
    pub unsafe fn local(&self, it: &Item) -> &[u64] {
        std::slice::from_raw_parts(self.local.add(it.at as usize), it.n as usize)
    }
    pub unsafe fn engine(&self, it: &Item) -> &[u64] {
        std::slice::from_raw_parts(self.engine.add(it.at as usize), it.n as usize)
    }
}

#[repr(C)]
pub struct Subject {
    pub name: *const c_char,
    pub what: *const c_char,
    pub asynchronous: u32,
    pub features: u32,
    pub create: unsafe extern "C" fn(u32, u64, u64) -> *mut c_void,
    pub destroy: unsafe extern "C" fn(*mut c_void),
    pub prepare: unsafe extern "C" fn(*mut c_void, *const Batch) -> *mut c_void,
    pub apply: unsafe extern "C" fn(*mut c_void, *const Batch, *mut c_void, usize, usize),
    pub done: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub flush: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    pub lookup: unsafe extern "C" fn(*mut c_void, *const u64, *const u64, usize) -> u32,
    pub total: unsafe extern "C" fn(*mut c_void) -> u64,
    pub hash: unsafe extern "C" fn(*mut c_void, *const u32, usize, *mut u64) -> usize,
    pub idle: Option<unsafe extern "C" fn(*mut c_void)>,
}
// Constant tables of functions and string literals.
unsafe impl Sync for Subject {}
