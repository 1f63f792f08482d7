//! Frames that must end the connection, and those that must not.

use crate::trial::server::Pair;
use crate::{Error, State};

#[test]
fn bad_frames_have_their_errors() {
    let cases: [(&[u8], Error); 34] = [
        (&[], Error::EmptyPacket),
        (&[0x3f], Error::UnknownFrame),
        (&[0x40], Error::FrameEncoding),
        // Acknowledgements: of the future, below zero, cut off.
        (&[2, 9, 0, 0, 0], Error::AckUnsent),
        (&[2, 0, 0, 0, 1], Error::AckRange),
        (&[2, 0, 0, 1, 0, 0, 0], Error::AckRange),
        (&[2, 0, 0, 5, 0], Error::FrameEncoding),
        (&[3, 0, 0, 0, 0, 1], Error::FrameEncoding),
        // Handshake bytes beyond the buffer, or cut off.
        (&[6, 0x48, 0, 1, 1], Error::CryptoBuffer),
        (
            &[6, 0xff, 255, 255, 255, 255, 255, 255, 255, 1, 1],
            Error::CryptoBuffer,
        ),
        (&[6, 0, 9, 1], Error::FrameEncoding),
        (&[7, 0], Error::EmptyToken),
        (&[7, 9, 1], Error::FrameEncoding),
        // Streams: one not opened, one of the server, one-way ones.
        (&[0x0a, 4, 1, 1], Error::StreamState),
        (&[0x0a, 1, 1, 1], Error::StreamLimit),
        (&[0x0a, 3, 1, 1], Error::StreamLimit),
        (&[0x0a, 2, 1, 1], Error::StreamState),
        (&[4, 8, 0, 0], Error::StreamState),
        (&[5, 1, 0], Error::StreamLimit),
        (&[0x11, 4, 0], Error::StreamState),
        (&[0x15, 1, 0], Error::StreamLimit),
        // Windows: of 512 bytes a stream.
        (&[0x0e, 0, 0x42, 0, 1, 1], Error::StreamFlowControl),
        (
            &[0x0e, 0, 0xff, 255, 255, 255, 255, 255, 255, 255, 1, 1],
            Error::StreamFlowControl,
        ),
        (&[4, 0, 0, 0x42, 1], Error::StreamFlowControl),
        // Ends: before what came, and two different ones.
        (&[0x0e, 0, 5, 1, 1, 0x0f, 0, 0, 1, 1], Error::FinalSize),
        (&[0x0f, 0, 0, 1, 1, 0x0e, 0, 1, 1, 1], Error::FinalSize),
        (&[0x0f, 0, 0, 1, 1, 4, 0, 0, 2], Error::FinalSize),
        (&[0x0e, 0, 0, 9, 1], Error::FrameEncoding),
        // Connection ids: retirement above the number, empty, too long, ours.
        (
            &[
                0x18, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            Error::FrameEncoding,
        ),
        (
            &[
                0x18, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            Error::FrameEncoding,
        ),
        (&[0x18, 1, 0, 21, 1], Error::FrameEncoding),
        (&[0x19, 0], Error::ConnectionId),
        (&[0x1a, 1, 2, 3], Error::FrameEncoding),
        (&[0x1d, 0, 9], Error::FrameEncoding),
    ];
    for (frames, want) in cases {
        let (mut pair, _) = Pair::connected();
        pair.send(2, frames);
        assert_eq!(pair.client.error(), Some(want), "{frames:x?}");
        assert_eq!(pair.client.state(), State::Closing);
        let mut out = [0; 1200];
        assert!(
            pair.client.transmit(1, &mut out) > 0,
            "the server learns it"
        );
    }
}

#[test]
fn the_end_is_sent_ever_more_seldom() {
    let (mut pair, _) = Pair::connected();
    pair.client.close(1, 5);
    let mut out = [0; 1200];
    assert!(pair.client.transmit(1, &mut out) > 0);
    for late in 1..=100_u32 {
        pair.client.receive(2, &mut [0x43; 40]);
        let sent = pair.client.transmit(2, &mut out) > 0;
        assert_eq!(sent, late.is_power_of_two(), "{late}");
    }
    // An answer that is due is not lost to what comes before it is sent.
    for _ in 101..=140 {
        pair.client.receive(2, &mut [0x43; 40]);
    }
    assert!(pair.client.transmit(2, &mut out) > 0);
}

#[test]
fn frames_are_forbidden_below_1_rtt() {
    for frames in [
        &[0x08, 0][..],
        &[0x1e],
        &[0x1d, 0, 0],
        &[0x10, 1],
        &[7, 1, 1],
    ] {
        let mut pair = Pair::new(true);
        pair.send(0, frames);
        assert_eq!(
            pair.client.error(),
            Some(Error::FrameForbidden),
            "{frames:?}"
        );
    }
}

#[test]
fn the_server_closes() {
    for (frames, error, code) in [
        (&[0x1c, 0x41, 0x28, 0, 0][..], Error::ClosedByPeer, 0x128),
        (&[0x1d, 7, 2, b'b', b'y'], Error::ClosedByApplication, 7),
    ] {
        let (mut pair, _) = Pair::connected();
        pair.send(2, frames);
        assert_eq!(pair.client.error(), Some(error));
        assert_eq!(pair.client.peer_code(), code);
        assert_eq!(pair.client.state(), State::Closed);
        let mut out = [0; 1200];
        assert_eq!(pair.client.transmit(1, &mut out), 0);
    }
}

#[test]
fn duplicates_and_old_packets_do_nothing() {
    let (mut pair, id) = Pair::connected();
    pair.numbered(2, 5, &[0x0e, 0, 0, 2, b'h', b'i']);
    pair.numbered(2, 5, &[0x0e, 0, 2, 1, b'!']);
    assert_eq!(pair.client.received(id), Ok((&b"hi"[..], false)));
    pair.numbered(2, 200, &[1]);
    // Too old to tell whether it came before.
    pair.numbered(2, 6, &[0x0e, 0, 2, 1, b'!']);
    assert_eq!(pair.client.received(id), Ok((&b"hi"[..], false)));
    assert_eq!(pair.client.error(), None);
}

#[test]
fn too_many_gaps_are_not_acknowledged() {
    let (mut pair, id) = Pair::connected();
    for offset in [2, 4, 6, 8, 10_u8] {
        pair.send(2, &[0x0e, 0, offset, 1, b'x']);
    }
    assert_eq!(pair.client.error(), None);
    // The packet with the last one, number 4, is as if it was lost.
    pair.numbered(2, 9, &[0x0e, 0, 0, 2, b'a', b'b']);
    pair.numbered(2, 10, &[0x0e, 0, 3, 1, b'y']);
    pair.numbered(2, 4, &[0x0e, 0, 10, 1, b'x']);
    assert_eq!(pair.client.received(id), Ok((&b"abxyx"[..], false)));
    for (pn, offset) in [(11, 5), (12, 7), (13, 9)] {
        pair.numbered(2, pn, &[0x0e, 0, offset, 1, b'y']);
    }
    assert_eq!(pair.client.received(id), Ok((&b"abxyxyxyxyx"[..], false)));
}

#[test]
fn connection_ids_come_and_go() {
    let id = |sequence: u8, prior: u8, byte: u8| {
        let mut frame = std::vec![0x18, sequence, prior, 4];
        frame.extend_from_slice(&[byte; 4]);
        frame.extend_from_slice(&[byte; 16]);
        frame
    };
    let (mut pair, _) = Pair::connected();
    pair.send(2, &id(1, 0, 1));
    pair.send(2, &id(1, 0, 1));
    assert_eq!(pair.client.error(), None);
    // Others go, of which one is in use.
    pair.send(2, &id(3, 2, 3));
    assert_eq!(pair.client.error(), None);
    pair.send(2, &id(2, 0, 2));
    assert_eq!(pair.client.error(), None, "late, and retired at once");
    pair.send(2, &id(4, 0, 4));
    pair.send(2, &id(5, 0, 5));
    assert_eq!(pair.client.error(), None);
    pair.send(2, &id(4, 0, 5));
    assert_eq!(pair.client.error(), Some(Error::ConnectionId));

    // Three are kept; a fourth is too much unless others go.
    for (prior, error) in [(0, Some(Error::ConnectionIdLimit)), (1, None), (3, None)] {
        let (mut pair, _) = Pair::connected();
        pair.send(2, &id(2, 0, 2));
        pair.send(2, &id(1, 0, 1));
        assert_eq!(pair.client.error(), None);
        pair.send(2, &id(3, prior, 3));
        assert_eq!(pair.client.error(), error, "{prior}");
    }
}

#[test]
fn a_retired_id_is_not_taken_again() {
    let id = |sequence: u8| {
        let mut frame = std::vec![0x18, sequence, 0, 5];
        frame.extend_from_slice(&[sequence; 21]);
        frame
    };
    let (mut pair, _) = Pair::connected();
    pair.send(2, &[0x1e]);
    // Out of order, and the second one again after it was used.
    pair.send(2, &id(2));
    pair.send(2, &id(1));
    assert_eq!(pair.client.migrate(), Ok(()));
    assert_eq!(pair.client.migrate(), Ok(()));
    let _ = pair.said();
    pair.send(2, &id(2));
    pair.send(2, &id(1));
    assert_eq!(pair.client.error(), None);
    assert_eq!(pair.client.migrate(), Err(Error::Migration));
}

#[test]
fn the_first_id_need_not_be_replaced() {
    // quic-go does not; it replaces the others.
    let id = |sequence: u8| {
        let mut frame = std::vec![0x18, sequence, 0, 5];
        frame.extend_from_slice(&[sequence; 21]);
        frame
    };
    let (mut pair, _) = Pair::connected();
    pair.send(2, &[0x1e]);
    pair.send(2, &id(1));
    pair.send(2, &id(2));
    for gone in 0..5 {
        assert_eq!(pair.client.migrate(), Ok(()), "{gone}");
        let mut said = pair.said();
        // A zero at the end was taken for padding.
        said.push(0);
        assert!(
            said.windows(2).any(|frame| frame == [0x19, gone]),
            "{said:x?}"
        );
        if gone > 0 {
            pair.send(2, &id(gone + 2));
        }
    }
    assert_eq!(pair.client.migrate(), Ok(()));
    assert_eq!(pair.client.migrate(), Err(Error::Migration));
    assert_eq!(pair.client.error(), None);
}

#[test]
fn streams_are_reset_by_the_server() {
    let (mut pair, id) = Pair::connected();
    pair.send(2, &[0x0e, 0, 0, 2, b'h', b'i']);
    pair.send(2, &[4, 0, 9, 5]);
    assert_eq!(pair.client.received(id), Err(Error::StreamReset));
    // STOP_SENDING is answered with a reset, after which nothing can be sent.
    pair.send(2, &[5, 0, 3]);
    assert_eq!(pair.client.write(id, b"x"), Err(Error::State));
    assert_eq!(pair.client.error(), None);
}

#[test]
fn a_blocked_server_gets_what_there_is() {
    let (mut pair, id) = Pair::connected();
    pair.send(2, &[0x0e, 0, 0, 3, b'a', b'b', b'c']);
    pair.client.consume(id, 3);
    let has = |said: &[u8], part: &[u8]| said.windows(part.len()).any(|at| at == part);
    // Three bytes are too few to tell of; the windows are 1024 and 512.
    let (all, one) = (&[0x10, 0x44, 3][..], &[0x11, 0, 0x42, 3][..]);
    let said = pair.said();
    assert!(!has(&said, all) && !has(&said, one), "{said:x?}");
    for (frames, want) in [(&[0x14, 0x44, 0][..], all), (&[0x15, 0, 0x42, 0], one)] {
        pair.send(2, frames);
        let said = pair.said();
        assert!(has(&said, want), "{said:x?}");
    }
}

#[test]
fn stateless_resets_end_it() {
    let (mut pair, _) = Pair::connected();
    let mut id = std::vec![0x18, 1, 0, 4, 1, 1, 1, 1];
    id.extend_from_slice(&[0xab; 16]);
    pair.send(2, &id);
    // The token of an id that was never used counts for nothing.
    let mut early = [0x55; 40];
    early[24..].fill(0xab);
    pair.client.receive(1, &mut early);
    assert_eq!(pair.client.error(), None);
    // Now the id is used, because the first one must go.
    let mut next = std::vec![0x18, 2, 1, 4, 2, 2, 2, 2];
    next.extend_from_slice(&[0xcd; 16]);
    pair.send(2, &next);
    let mut reset = [0x55; 40];
    reset[24..].fill(0xab);
    let mut other = reset;
    other[39] ^= 1;
    pair.client.receive(1, &mut other);
    assert_eq!(pair.client.error(), None);
    pair.client.receive(1, &mut reset);
    assert_eq!(pair.client.error(), Some(Error::StatelessReset));
}
