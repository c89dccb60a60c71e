// SPDX-License-Identifier: Apache-2.0
//! Dynamo's dynamo-kv-router: ConcurrentRadixTreeCompressed.  Its writer is its own: a thread that takes events from a channel and
//! keeps the maps from engine hashes; so applying hands over, and flush() waits and reads that thread's CPU time.
use crate::{Batch, Item, Subject, STORED};
use dynamo_kv_router::indexer::{SyncIndexer, WorkerTask};
use dynamo_kv_router::protocols::{
    compute_block_hash_for_seq, BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData,
    KvCacheRemoveData, KvCacheStoreData, KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::ConcurrentRadixTreeCompressed;
use std::ffi::c_void;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::thread::JoinHandle;

struct Tree {
    tree: Arc<ConcurrentRadixTreeCompressed>,
    lane: flume::Sender<WorkerTask>,
    thread: Option<JoinHandle<()>>,
    prompt: Vec<LocalBlockHash>,
    last: OverlapScores,
}

unsafe extern "C" fn create(_workers: u32, _memberships: u64, _blocks: u64) -> *mut c_void {
    let tree = Arc::new(ConcurrentRadixTreeCompressed::new());
    let (lane, tasks) = flume::unbounded();
    let of_thread = tree.clone();
    let thread = std::thread::spawn(move || of_thread.worker(tasks, None).expect("dynamo: the writer failed"));
    let last = OverlapScores::new();
    Box::into_raw(Box::new(Tree { tree, lane, thread: Some(thread), prompt: Vec::with_capacity(8192), last })).cast()
}

unsafe extern "C" fn destroy(s: *mut c_void) {
    let mut s = Box::from_raw(s.cast::<Tree>());
    let _ = s.lane.send(WorkerTask::Terminate);
    let _ = s.thread.take().unwrap().join();
}

unsafe fn event_of(b: &Batch, it: &Item, id: u64) -> RouterEvent {
    let data = if it.kind == STORED {
        let blocks = b.engine(it).iter().zip(b.local(it)).map(|(&e, &l)| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(e),
            tokens_hash: LocalBlockHash(l),
            mm_extra_info: None,
        });
        KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: (it.has_parent != 0).then_some(ExternalSequenceBlockHash(it.parent)),
            start_position: None,
            blocks: blocks.collect(),
        })
    } else {
        let block_hashes = b.engine(it).iter().map(|&h| ExternalSequenceBlockHash(h)).collect();
        KvCacheEventData::Removed(KvCacheRemoveData { block_hashes })
    };
    RouterEvent::new(u64::from(it.worker), KvCacheEvent { event_id: id, data, dp_rank: 0 })
}

unsafe extern "C" fn prepare(_s: *mut c_void, b: *const Batch) -> *mut c_void {
    let events = (*b).items().iter().enumerate();
    let events: Vec<Option<RouterEvent>> = events.map(|(i, it)| Some(event_of(&*b, it, i as u64))).collect();
    Box::into_raw(Box::new(events)).cast()
}

unsafe extern "C" fn apply(s: *mut c_void, _b: *const Batch, ready: *mut c_void, from: usize, to: usize) {
    let lane = &(*s.cast::<Tree>()).lane;
    let events = &mut *ready.cast::<Vec<Option<RouterEvent>>>();
    for event in &mut events[from..to] {
        if let Some(event) = event.take() {
            lane.send(WorkerTask::Event(event)).expect("dynamo: the writer is gone");
        }
    }
}

unsafe extern "C" fn done(_s: *mut c_void, ready: *mut c_void) {
    drop(Box::from_raw(ready.cast::<Vec<Option<RouterEvent>>>()));
}

unsafe extern "C" fn flush(s: *mut c_void) -> u64 {
    let s = s.cast::<Tree>();
    let (tell, told) = tokio::sync::oneshot::channel();
    (*s).lane.send(WorkerTask::Flush(tell)).expect("dynamo: the writer is gone");
    told.blocking_recv().expect("dynamo: the writer is gone");
    let mut clock = 0;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let thread = (*s).thread.as_ref().unwrap().as_pthread_t();
    libc::pthread_getcpuclockid(thread as libc::pthread_t, &mut clock);
    libc::clock_gettime(clock, &mut t);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

unsafe extern "C" fn lookup(s: *mut c_void, local: *const u64, _chain: *const u64, n: usize) -> u32 {
    let s = s.cast::<Tree>();
    let prompt = &mut (*s).prompt;
    prompt.clear();
    prompt.extend(std::slice::from_raw_parts(local, n).iter().map(|&h| LocalBlockHash(h)));
    (*s).last = (*s).tree.find_matches(prompt, false);
    (*s).last.scores.values().copied().max().unwrap_or(0)
}

unsafe extern "C" fn total(s: *mut c_void) -> u64 {
    (*s.cast::<Tree>()).last.scores.values().map(|&v| u64::from(v)).sum()
}

unsafe extern "C" fn hash(_s: *mut c_void, token: *const u32, n: usize, out: *mut u64) -> usize {
    let tokens = std::slice::from_raw_parts(token, n);
    let hashes = compute_block_hash_for_seq(tokens, 16, BlockHashOptions::default());
    for (i, h) in hashes.iter().enumerate() {
        *out.add(i) = h.0;
    }
    hashes.len()
}

unsafe extern "C" fn idle(s: *mut c_void) {
    (*s.cast::<Tree>()).tree.run_cleanup_task();
}

#[no_mangle]
pub static subject_dynamo: Subject = Subject {
    name: c"dynamo".as_ptr(),
    what: c"dynamo-kv-router 1.6.1, ConcurrentRadixTreeCompressed".as_ptr(),
    asynchronous: 1,
    features: 0,
    create,
    destroy,
    prepare,
    apply,
    done,
    flush: Some(flush),
    lookup,
    total,
    hash,
    idle: Some(idle),
};
