//! Clients that a real directory knows: slapd of OpenLDAP, where it is installed.

use core::time::Duration;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS};

use crate::support::{Broker, PATIENCE, free_port, run};

const SLAPD: &str = "/usr/sbin/slapd";

/// Alice is of two groups, bob of none; mallory has a name with syntax in it.
const ENTRIES: &str = "\
dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: cn=dunlin,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: dunlin
userPassword: service

dn: uid=alice,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: A
userPassword: one
departmentNumber: cn=ops,ou=groups,dc=example,dc=org
departmentNumber: night

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
userPassword: two

dn: uid=a\\2ab\\28c\\29,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: a*b(c)
cn: Mallory
sn: M
userPassword: three
";

/// A running directory.
struct Directory {
    child: Child,
    ports: [u16; 2],
    dir: tempfile::TempDir,
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Directory {
    /// With a certificate that the authority of this broker signed; `None`: it is not
    /// installed.
    fn start(certificates: &Path) -> Option<Self> {
        if !Path::new(SLAPD).exists() {
            let why = "skipped: slapd is not installed (scripts/setup-test.sh)";
            let _ = writeln!(std::io::stderr(), "{why}");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("db")).expect("made");
        let certs = certificates.display();
        let config = format!(
            "include /etc/ldap/schema/core.schema\n\
             include /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\n\
             modulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             pidfile {pid}\n\
             TLSCACertificateFile {certs}/ca.pem\n\
             TLSCertificateFile {certs}/server.pem\n\
             TLSCertificateKeyFile {certs}/server.key\n\
             database mdb\nsuffix \"dc=example,dc=org\"\ndirectory {db}\n\
             access to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn.exact=\"cn=dunlin,dc=example,dc=org\" read by self read by * none\n",
            pid = at("pid").display(),
            db = at("db").display(),
        );
        std::fs::write(at("slapd.conf"), config).expect("written");
        std::fs::write(at("entries.ldif"), ENTRIES).expect("written");
        let added = Command::new(SLAPD)
            .args(["-T", "add", "-f"])
            .arg(at("slapd.conf"))
            .arg("-l")
            .arg(at("entries.ldif"))
            .output()
            .expect("started");
        assert!(added.status.success(), "{added:?}");
        let ports = [free_port(), free_port()];
        let [plain, tls] = ports;
        let child = Command::new(SLAPD)
            .args(["-d", "0", "-h"])
            .arg(format!("ldap://127.0.0.1:{plain} ldaps://127.0.0.1:{tls}"))
            .arg("-f")
            .arg(at("slapd.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let directory = Self { child, ports, dir };
        let begun = Instant::now();
        while ports
            .iter()
            .any(|port| TcpStream::connect(("127.0.0.1", *port)).is_err())
        {
            assert!(begun.elapsed() < PATIENCE, "slapd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(directory)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// A broker that makes certificates, and where they are.
fn certificates() -> (Broker, PathBuf) {
    let broker = Broker::start(1);
    let certs = broker.data_dir().join("certs");
    (broker, certs)
}

#[test]
fn a_directory_lets_clients_in_and_says_their_groups() {
    let (maker, certs) = certificates();
    let Some(directory) = Directory::start(&certs) else {
        return;
    };
    let secret = directory.file("secret", "service\n");
    let acl = directory.file(
        "acl",
        "group ops\ntopic readwrite plant/#\n\nuser bob\ntopic b/#\n",
    );
    let [plain, tls] = directory.ports;
    let ca = maker.ca();
    let template = "user_dn=\"uid={user},ou=people,dc=example,dc=org\"";
    let search = format!(
        "base=\"dc=example,dc=org\",filter=\"(&(objectClass=inetOrgPerson)(uid={{user}}))\",\
         bind_dn=\"cn=dunlin,dc=example,dc=org\",bind_password_file={secret:?}"
    );
    for (url, how) in [
        (
            format!("url=\"ldaps://localhost:{tls}\",ca_file={ca:?}"),
            template,
        ),
        (
            format!("url=\"ldap://localhost:{plain}\",start_tls=true,ca_file={ca:?}"),
            &*search,
        ),
        (format!("url=\"ldap://127.0.0.1:{plain}\""), &*search),
    ] {
        let ldap = format!(
            "auth.ldap={{{url},{how},group_attribute=\"departmentNumber\",timeout=\"15s\"}}"
        );
        let acl = format!("auth.acl_file={:?}", acl.display().to_string());
        let delay = "auth.login_delay=\"0s\"";
        let listener = r#"listener=[{transport="tcp",address="127.0.0.1:0",anonymous="never"}]"#;
        let broker = Broker::start_with(2, &[listener, &ldap, &acl, delay]);
        run(async {
            let login = |user: &str, password: &str| {
                let builder = broker.client(Transport::Tcp);
                builder.credentials(user, password.to_owned()).connect()
            };
            for (user, password) in [
                ("alice", "two"),
                ("alice", ""),
                ("Alice", "one"),
                ("eve", "one"),
                ("*", "one"),
                ("alice)(uid=*", "one"),
                ("alice,ou=people", "one"),
                ("a*b(c)", "one"),
            ] {
                let refused = login(user, password).await;
                assert!(refused.is_err(), "{user}:{password} {how}");
            }
            for (user, password, topic, may) in [
                ("alice", "one", "plant/1", true),
                ("alice", "one", "b/1", false),
                ("bob", "two", "b/1", true),
                ("bob", "two", "plant/1", false),
                ("a*b(c)", "three", "plant/1", false),
            ] {
                let (client, _messages) = login(user, password).await.expect(user);
                let publish = Publish::new(topic, "x").qos(QoS::AtLeastOnce);
                let answered = client.publish(publish).await;
                let allowed = matches!(answered, Ok(reason) if !reason.is_error());
                assert_eq!(allowed, may, "{user} {topic}: {answered:?}");
                client.disconnect().await;
            }
        });
    }
}

#[test]
fn a_directory_that_is_down_lets_no_one_in_or_leaves_it_to_the_next_step() {
    let (maker, certs) = certificates();
    let Some(directory) = Directory::start(&certs) else {
        return;
    };
    let [_, tls] = directory.ports;
    // An authority that did not sign its certificate.
    let stranger = tempfile::tempdir().expect("a directory");
    let other = Broker::start(1);
    std::fs::copy(other.ca(), stranger.path().join("ca.pem")).expect("copied");
    let ca = stranger.path().join("ca.pem");
    let template = "user_dn=\"uid={user},ou=people,dc=example,dc=org\"";
    let ldap = format!(
        "auth.ldap={{url=\"ldaps://localhost:{tls}\",ca_file={ca:?},{template},timeout=\"15s\"}}"
    );
    let listener = r#"listener=[{transport="tcp",address="127.0.0.1:0",anonymous="never"}]"#;
    let broker = Broker::start_with(1, &[listener, &ldap]);
    run(async {
        let builder = broker.client(Transport::Tcp);
        let builder = builder.credentials("alice", "one".to_owned());
        let error = builder.connect().await.expect_err("not its certificate");
        // It may try again later.
        assert!(format!("{error:?}").contains("ServerBusy"), "{error:?}");
    });
    drop((maker, directory));
}
