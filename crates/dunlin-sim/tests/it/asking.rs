//! A server that decides on topics: packets wait for it, in order, and its answers hold
//! for a time.

use core::time::Duration;

use dunlin_broker::access::WhenDown;
use dunlin_sim::{Script, Setup, check, check_with};

#[test]
fn what_no_rule_is_about_a_server_decides() {
    check(
        "
        set asks=deny
        acl topic write listed/a; topic deny t/secret
        says t/1 yes 100
        says t/secret yes 100
        says t/# yes 100
        says s/+ yes 100
        says s/1 yes 100
        a > CONNECT a clean => CONNACK
        a > PUBLISH listed/a x q1 #1 => PUBACK 1 0x10
        a > PUBLISH t/1 x q1 #2 => PUBACK 2 0x10
        a > PUBLISH t/2 x q1 #3 => PUBACK 3 0x87
        a > PUBLISH t/secret x q1 #4 => PUBACK 4 0x87
        a > PUBLISH t/2 x q2 #5 => PUBREC 5 0x87
        a > PUBLISH $SYS/x x q1 #6 => PUBACK 6 0x87
        # A line that forbids a part forbids the whole.
        a > SUBSCRIBE 1 t/# s/+|q1 $share/g/s/+ x/# => SUBACK 1 87 01 00 87
        a > UNSUBSCRIBE 2 $share/g/s/+ => UNSUBACK 2 00
        a > PUBLISH s/1 one q1 #7
        a < PUBLISH s/1 one q1 #1
        a < PUBACK 7
        a > PUBACK 1
    ",
    );
}

#[test]
fn answers_of_the_server_outlast_a_change_of_users_but_not_of_rules() {
    check(
        "
        set asks=last
        acl topic read other
        user ann secret
        says t/1 yes 100
        a > CONNECT a clean => CONNACK
        a > PUBLISH t/1 one q1 #1 => PUBACK 1 0x10
        says t/1 down 100
        user bob secret
        a > PUBLISH t/1 two q1 #2 => PUBACK 2 0x10
        acl topic read more
        a > PUBLISH t/1 three q1 #3 => PUBACK 3 0x87
    ",
    );
}

/// The server decides on a filter; of what it allows, a line may deny a part.
#[test]
fn a_line_may_deny_a_part_of_what_the_server_allows() {
    check(
        "
        set asks=deny
        set filter_subscriptions=yes
        acl topic write #; topic read t/1/#; topic deny s/secret
        says s/# yes 100
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t/# s/#|q1 t/1/x s/secret $share/g/s/# => SUBACK 1 87 01 00 87 87
        p > CONNECT p clean => CONNACK
        p > PUBLISH s/1 1 q1 #1 => PUBACK 1
        a < PUBLISH s/1 1 q1 #1
        a > PUBACK 1
        p > PUBLISH s/secret 2 q1 #2 => PUBACK 2 0x87
        acl topic write t/#; topic read t/1/#; topic deny s/secret
        says s/secret yes 100
        says s/2 yes 100
        p > PUBLISH s/2 3 q1 #3 => PUBACK 3
        a < PUBLISH s/2 3 q1 #2
        a > PUBACK 2
    ",
    );
}

#[test]
fn what_waits_for_an_answer_keeps_its_order() {
    check_with(
        "
        set asks=deny
        says t/1 yes 100
        says t/2 yes 100
        says # yes 100
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 # => SUBACK 1 00
        a > CONNECT a clean => CONNACK
        a >> PUBLISH t/1 one q1 #1
        a >> PUBLISH t/1 two
        a >> PUBLISH t/no three q1 #2
        a >> PUBLISH t/2 four alias=1
        a >> PUBLISH - five q1 #3 alias=1
        a > SUBSCRIBE 1 t/no
        a < PUBACK 1
        a < PUBACK 2 0x87
        a < PUBACK 3
        a < SUBACK 1 87
        b < PUBLISH t/1 one
        b < PUBLISH t/1 two
        b < PUBLISH t/2 four
        b < PUBLISH t/2 five
    ",
        |setup| setup.pace.auth = (100_000, 300_000),
    );
}

#[test]
fn answers_hold_for_a_time() {
    check(
        "
        set asks=deny
        says t yes 10
        a > CONNECT a clean => CONNACK
        a > PUBLISH t x q1 #1 => PUBACK 1 0x10
        says t no 10
        a > PUBLISH t x q1 #1 => PUBACK 1 0x10
        wait 11s
        a > PUBLISH t x q1 #1 => PUBACK 1 0x87
        says t yes 10
        a > PUBLISH t x q1 #1 => PUBACK 1 0x87
        wait 11s
        a > PUBLISH t x q1 #1 => PUBACK 1 0x10
        # Other rules end them.
        says t no 10
        acl topic read x
        a > PUBLISH t x q1 #1 => PUBACK 1 0x87
        # One that holds for no time counts for the packet that waited.
        says now yes 0
        a > PUBLISH now x q1 #1 => PUBACK 1 0x10
        says now no 0
        a > PUBLISH now x q1 #1 => PUBACK 1 0x87
    ",
    );
}

#[test]
fn without_an_answer_the_rule_for_that_decides() {
    for (rule, known, new) in [
        ("deny", "87", "87"),
        ("allow", "10", "10"),
        ("last", "10", "87"),
    ] {
        check(&format!(
            "
            set asks={rule}
            says t yes 1
            a > CONNECT a clean => CONNACK
            a > PUBLISH t x q1 #1 => PUBACK 1 0x10
            says t down 1
            says u down 1
            wait 2s
            a > PUBLISH t x q1 #1 => PUBACK 1 0x{known}
            a > PUBLISH u x q1 #1 => PUBACK 1 0x{new}
        "
        ));
    }
}

#[test]
fn a_reload_keeps_subscriptions_that_the_server_allowed() {
    check(
        "
        set asks=deny
        says t/# yes 1
        says t/1 yes 100
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t/#|q1 $share/g/t/#|q1 => SUBACK 1 01 01
        says t/# no 1
        acl user other; topic read x
        wait 2s
        a > PUBLISH t/1 x q1 #1
        a < PUBLISH t/1 x q1 #1
        a < PUBLISH t/1 x q1 #2
        a < PUBACK 1
        a > PUBACK 1
        a > PUBACK 2
        # A line that forbids it ends it.
        acl topic deny t/#
        a > PUBLISH t/1 x q1 #2 => PUBACK 2 0x87
    ",
    );
}

/// A packet with more filters than are asked about at a time, and than are remembered.
#[test]
fn a_packet_with_many_filters_has_them_all_decided() {
    let filters = |from: usize| (from..from + 200).map(|it| format!("f/{it}"));
    let mut script = String::from("set asks=deny\n");
    for (at, filter) in filters(0).enumerate() {
        let says = if at % 3 == 0 { "yes" } else { "no" };
        script += &format!("says {filter} {says} 0\n");
    }
    let list: Vec<String> = filters(0).collect();
    let codes = (0..200).map(|at| if at % 3 == 0 { "00" } else { "87" });
    let codes: Vec<&str> = codes.collect();
    script += &format!(
        "a > CONNECT a clean => CONNACK\na > SUBSCRIBE 1 {} => SUBACK 1 {}\n",
        list.join(" "),
        codes.join(" ")
    );
    check(&script);
}

/// While the answer is away nothing but that client waits, and it holds little.
#[test]
fn others_do_not_wait_for_an_answer() {
    let mut setup = Setup::new(2, 1);
    setup.asks = Some(WhenDown::Deny);
    setup.pace.auth = (5_000_000, 5_000_000);
    let mut script = Script::new(setup);
    for line in [
        "says t yes 100",
        "says u yes 100",
        "a > CONNECT a clean => CONNACK",
        "b > CONNECT b clean => CONNACK",
        "b >> PUBLISH u x q1 #1",
    ] {
        script
            .step(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    script.run_for(Duration::from_secs(6));
    assert_eq!(script.pop("b").as_deref(), Some("PUBACK 1 0x10"));
    script.say("a >> PUBLISH t x q1 #1");
    script.run_for(Duration::from_millis(100));
    script.say("b >> PUBLISH u x q1 #2");
    script.run_for(Duration::from_millis(100));
    assert_eq!(script.pop("b").as_deref(), Some("PUBACK 2 0x10"));
    assert_eq!(script.pop("a"), None);
    script.run_for(Duration::from_secs(6));
    assert_eq!(script.pop("a").as_deref(), Some("PUBACK 1 0x10"));
}
