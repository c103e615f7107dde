#![forbid(unsafe_code)]
//! Trees over the slab: a treap, whose shape is that of a binary search tree by key and of a heap
//! by priority, so that its depth is O(log n) whatever the order of insertions.
//!
//! A tree is the number of its root; a node is in one tree at most. Each node knows something of
//! its whole subtree, gathered from its children: gather(t) = own(t) + gather(left) +
//! gather(right).

use super::slab::{NIL, Slab};

/// A tree's key, and what it gathers.
pub(super) trait Order {
    /// Whether `a` comes before `b`.
    fn before(slab: &Slab, a: u32, b: u32) -> bool;
    /// Recomputes what `t` knows of its subtree from its children.
    fn gather(slab: &mut Slab, t: u32);
}

/// Free blocks by size, then address; gathers what the blocks offer (`EDGE`, `PAGE`).
pub(super) enum BySize {}

impl Order for BySize {
    fn before(slab: &Slab, a: u32, b: u32) -> bool {
        let (a, b) = (&slab[a], &slab[b]);
        (a.bytes, a.address) < (b.bytes, b.address)
    }

    fn gather(slab: &mut Slab, t: u32) {
        let node = slab[t];
        let any = |child: u32| if child == NIL { 0 } else { slab[child].any };
        slab[t].any = node.own | any(node.left) | any(node.right);
    }
}

/// Gaps by address; gathers the largest.
pub(super) enum ByAddress {}

impl Order for ByAddress {
    fn before(slab: &Slab, a: u32, b: u32) -> bool {
        slab[a].address < slab[b].address
    }

    fn gather(slab: &mut Slab, t: u32) {
        let node = slab[t];
        slab[t].epoch = node.bytes.max(largest(slab, node.left)).max(largest(slab, node.right));
    }
}

/// A node's priority: a mix of its number, so it needs no memory and no random source.
fn priority(n: u32) -> u32 {
    let mixed = (n ^ (n >> 16)).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b);
    mixed ^ (mixed >> 16)
}

/// Adds `n`, which is in no tree; gives the new root.
pub(super) fn insert<O: Order>(slab: &mut Slab, t: u32, n: u32) -> u32 {
    if t == NIL || priority(n) > priority(t) {
        let (left, right) = split::<O>(slab, t, n);
        (slab[n].left, slab[n].right) = (left, right);
        O::gather(slab, n);
        return n;
    }
    if O::before(slab, n, t) {
        slab[t].left = insert::<O>(slab, slab[t].left, n);
    } else {
        slab[t].right = insert::<O>(slab, slab[t].right, n);
    }
    O::gather(slab, t);
    t
}

/// Takes `n` out; gives the new root.
pub(super) fn remove<O: Order>(slab: &mut Slab, t: u32, n: u32) -> u32 {
    if t == NIL {
        return NIL;
    }
    if t == n {
        let (left, right) = (slab[t].left, slab[t].right);
        (slab[n].left, slab[n].right) = (NIL, NIL);
        return join::<O>(slab, left, right);
    }
    if O::before(slab, n, t) {
        slab[t].left = remove::<O>(slab, slab[t].left, n);
    } else {
        slab[t].right = remove::<O>(slab, slab[t].right, n);
    }
    O::gather(slab, t);
    t
}

/// Parts a tree into what comes before `n` and what after.
fn split<O: Order>(slab: &mut Slab, t: u32, n: u32) -> (u32, u32) {
    if t == NIL {
        return (NIL, NIL);
    }
    let parts = if O::before(slab, t, n) {
        let (left, right) = split::<O>(slab, slab[t].right, n);
        slab[t].right = left;
        (t, right)
    } else {
        let (left, right) = split::<O>(slab, slab[t].left, n);
        slab[t].left = right;
        (left, t)
    };
    O::gather(slab, t);
    parts
}

/// Joins two trees, all of the first before all of the second.
fn join<O: Order>(slab: &mut Slab, a: u32, b: u32) -> u32 {
    if a == NIL || b == NIL {
        return if a == NIL { b } else { a };
    }
    if priority(a) > priority(b) {
        slab[a].right = join::<O>(slab, slab[a].right, b);
        O::gather(slab, a);
        a
    } else {
        slab[b].left = join::<O>(slab, a, slab[b].left);
        O::gather(slab, b);
        b
    }
}

/// By size: the first block that is not before (`bytes`, `address`).
pub(super) fn at_least(slab: &Slab, mut t: u32, bytes: u64, address: u64) -> u32 {
    let mut found = NIL;
    while t != NIL {
        let node = &slab[t];
        if (node.bytes, node.address) >= (bytes, address) {
            found = t;
            t = node.left;
        } else {
            t = node.right;
        }
    }
    found
}

/// By size: the last block before (`bytes`, `address`) that offers `what`.
pub(super) fn last_offering(slab: &Slab, t: u32, what: u8, bytes: u64, address: u64) -> u32 {
    if t == NIL || slab[t].any & what == 0 {
        return NIL;
    }
    let node = &slab[t];
    if (node.bytes, node.address) < (bytes, address) {
        let found = last_offering(slab, node.right, what, bytes, address);
        if found != NIL {
            return found;
        }
        if node.own & what != 0 {
            return t;
        }
    }
    last_offering(slab, node.left, what, bytes, address)
}

/// By size: the last block of all.
pub(super) fn last(slab: &Slab, mut t: u32) -> u32 {
    while t != NIL && slab[t].right != NIL {
        t = slab[t].right;
    }
    t
}

/// By address: the first gap from `address` on that has `bytes`.
pub(super) fn first_gap(slab: &Slab, t: u32, bytes: u64, address: u64) -> u32 {
    if largest(slab, t) < bytes || t == NIL {
        return NIL;
    }
    let node = &slab[t];
    if node.address >= address {
        let found = first_gap(slab, node.left, bytes, address);
        if found != NIL {
            return found;
        }
        if node.bytes >= bytes {
            return t;
        }
    }
    first_gap(slab, node.right, bytes, address)
}

/// By address: the largest gap's size, 0 without any.
pub(super) fn largest(slab: &Slab, t: u32) -> u64 {
    if t == NIL { 0 } else { slab[t].epoch }
}
