//! Serial numbers around their end.

use dunlin_amqp_codec::SerialNumber;

#[test]
fn they_wrap() {
    let last = SerialNumber(u32::MAX);
    assert_eq!(last.next(), SerialNumber(0));
    assert_eq!(last.add(3), SerialNumber(2));
    assert_eq!(SerialNumber(2).since(last), 3);
    assert_eq!(last.since(SerialNumber(2)), -3);
    assert!(last.is_before(SerialNumber(0)));
    assert!(!SerialNumber(0).is_before(last));
    assert!(last < SerialNumber(5));
}

#[test]
fn half_the_circle_apart_has_no_order() {
    let (a, b) = (SerialNumber(7), SerialNumber(7 + (1 << 31)));
    assert_eq!(a.partial_cmp(&b), None);
    assert_eq!(b.partial_cmp(&a), None);
    assert!(!a.is_before(b) && !b.is_before(a));
}

#[test]
fn ranges_are_counted() {
    assert_eq!(SerialNumber(5).count_to(SerialNumber(5)), Some(1));
    assert_eq!(SerialNumber(u32::MAX).count_to(SerialNumber(1)), Some(3));
    assert_eq!(SerialNumber(1).count_to(SerialNumber(0)), None);
    assert_eq!(
        SerialNumber(0).count_to(SerialNumber(i32::MAX as u32)),
        Some(1 << 31)
    );
}
