//! Which publishers of a thread may have something to send: those to which
//! something happened since they were asked last. A turn of the loop asks these
//! and no others, so that what a message costs does not grow with the number of
//! connections.

use core::mem;

/// Publishers of a thread, each listed at most once.
#[derive(Debug)]
pub(super) struct Ready {
    listed: Vec<bool>,
    list: Vec<usize>,
    /// The list of the turn before, for its memory.
    spare: Vec<usize>,
}

impl Ready {
    /// For this many publishers, none of them listed.
    pub(super) fn new(publishers: usize) -> Self {
        Self {
            listed: vec![false; publishers],
            list: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Something happened to a publisher: a message is due, an acknowledgement
    /// came, bytes left, the broker gave credit.
    pub(super) fn add(&mut self, publisher: usize) {
        if let Some(listed) = self.listed.get_mut(publisher)
            && !mem::replace(listed, true)
        {
            self.list.push(publisher);
        }
    }

    /// All that are listed; the list is empty then.
    pub(super) fn take(&mut self) -> Vec<usize> {
        let list = mem::replace(&mut self.list, mem::take(&mut self.spare));
        for publisher in &list {
            if let Some(listed) = self.listed.get_mut(*publisher) {
                *listed = false;
            }
        }
        list
    }

    /// Gives back what [`Self::take`] returned.
    pub(super) fn put_back(&mut self, mut list: Vec<usize>) {
        list.clear();
        self.spare = list;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_listed_once_until_it_is_taken() {
        let mut ready = Ready::new(3);
        [2, 0, 2, 7].into_iter().for_each(|n| ready.add(n));
        let list = ready.take();
        assert_eq!(list, [2, 0]);
        ready.add(2);
        ready.put_back(list);
        assert_eq!(ready.take(), [2]);
        assert!(ready.take().is_empty());
    }
}
