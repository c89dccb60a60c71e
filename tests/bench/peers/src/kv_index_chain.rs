// SPDX-License-Identifier: Apache-2.0
//! SMG's kv-index: ChainIndex, applied in place; answers written into an array, which is cheaper than its map of scores.
use crate::{Batch, Item, Subject, STORED};
use kv_index::{
    compute_request_content_hashes, ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock,
};
use std::ffi::c_void;

struct Chain {
    index: ChainIndex,
    id: Vec<u32>,
    map: Vec<ChainBlockMap>,
    score: Vec<u32>,
    said: Vec<u32>, // workers of the last answer
}

enum Event {
    Store(Vec<StoredBlock>, Option<SequenceHash>),
    Remove(Vec<SequenceHash>),
}

unsafe extern "C" fn create(workers: u32, _memberships: u64, _blocks: u64) -> *mut c_void {
    let index = ChainIndex::with_max_workers(workers as usize);
    let id = (0..workers).map(|w| index.intern_worker(&format!("http://w{w}")).unwrap()).collect();
    let map = (0..workers).map(|_| ChainBlockMap::new()).collect();
    let score = vec![0; workers as usize + 64];
    Box::into_raw(Box::new(Chain { index, id, map, score, said: Vec::with_capacity(workers as usize) })).cast()
}

unsafe extern "C" fn destroy(s: *mut c_void) {
    drop(Box::from_raw(s.cast::<Chain>()));
}

unsafe fn event_of(b: &Batch, it: &Item) -> Event {
    if it.kind != STORED {
        return Event::Remove(b.engine(it).iter().map(|&h| SequenceHash(h)).collect());
    }
    let blocks = b.engine(it).iter().zip(b.local(it));
    let blocks = blocks.map(|(&e, &l)| StoredBlock { seq_hash: SequenceHash(e), content_hash: ContentHash(l) });
    Event::Store(blocks.collect(), (it.has_parent != 0).then_some(SequenceHash(it.parent)))
}

unsafe extern "C" fn prepare(_s: *mut c_void, b: *const Batch) -> *mut c_void {
    let events: Vec<Event> = (*b).items().iter().map(|it| event_of(&*b, it)).collect();
    Box::into_raw(Box::new(events)).cast()
}

unsafe extern "C" fn apply(s: *mut c_void, b: *const Batch, ready: *mut c_void, from: usize, to: usize) {
    let s = s.cast::<Chain>();
    let events = &*ready.cast::<Vec<Event>>();
    let items = (*b).items();
    for i in from..to {
        let w = items[i].worker as usize;
        // The reader's fields are others than the writer's.
        let map = &mut *(*s).map.as_mut_ptr().add(w);
        let id = *(*s).id.as_ptr().add(w);
        match &events[i] {
            Event::Store(blocks, parent) => {
                let done = (*s).index.apply_stored(id, blocks, *parent, map);
                done.expect("kv-index: an event was not applied");
            }
            Event::Remove(hashes) => (*s).index.apply_removed(id, hashes, map),
        }
    }
}

unsafe extern "C" fn done(_s: *mut c_void, ready: *mut c_void) {
    drop(Box::from_raw(ready.cast::<Vec<Event>>()));
}

unsafe extern "C" fn lookup(s: *mut c_void, local: *const u64, _chain: *const u64, n: usize) -> u32 {
    let s = s.cast::<Chain>();
    let local = std::slice::from_raw_parts(local, n);
    let (score, said) = (&mut (*s).score, &mut (*s).said);
    let mut best = 0;
    said.clear();
    (*s).index.score_into(local, |h| *h, false, |worker, blocks| {
        score[worker as usize] = blocks;
        said.push(worker);
        best = best.max(blocks);
    });
    best
}

unsafe extern "C" fn total(s: *mut c_void) -> u64 {
    let s = &*s.cast::<Chain>();
    s.said.iter().map(|&w| u64::from(s.score[w as usize])).sum()
}

unsafe extern "C" fn hash(_s: *mut c_void, token: *const u32, n: usize, out: *mut u64) -> usize {
    let hashes = compute_request_content_hashes(std::slice::from_raw_parts(token, n), 16);
    for (i, h) in hashes.iter().enumerate() {
        *out.add(i) = h.0;
    }
    hashes.len()
}

#[no_mangle]
pub static subject_kv_index: Subject = Subject {
    name: c"kv-index".as_ptr(),
    what: c"SMG kv-index 2.0.0, ChainIndex".as_ptr(),
    asynchronous: 0,
    features: 0,
    create,
    destroy,
    prepare,
    apply,
    done,
    flush: None,
    lookup,
    total,
    hash,
    idle: None,
};
