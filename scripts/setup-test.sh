#!/usr/bin/env bash
# Installs what the tests with third-party programs need and is missing:
#
#   Debian packages  mosquitto, mosquitto-clients, openssl, libssl-dev, python3-venv,
#                    python3-dev, tshark, prometheus, for its promtool, and for the
#                    sinks postgresql and nats-server, slapd, for the
#                    microcontroller qemu-system-arm, gcc-arm-none-eabi and
#                    musl-tools; for clients of AMQP a JDK, maven and
#                    libqpid-proton-cpp12-dev (root)
#   target/venv      a Python environment with paho-mqtt, aioquic, qpid-proton and
#                    openapi-spec-validator
#   target/interop   MQTT.js and rhea from npm
#   target/interop-java  what interop/amqp/pom.xml names, from Maven
#   target/kafka     a server of Kafka, which scripts/sink/kafka/pom.xml names, from Maven
#   target/thumb     where rustup has none for the Cortex-M4, a compiler (scripts/mcu/toolchain.sh)
#   target/peers     nats-server 2.15, for the log of a partition, from the Go module
#                    proxy where there is Go; with --brokers: mqttv5, a broker that speaks QUIC, from
#                    the Rust registry; takes minutes; with --brokers --rmqttd also that;
#                    with --brokers HiveMQ CE, which scripts/interop/hivemq/pom.xml names,
#                    from Maven (100 MB), where there are a JDK and maven
#
# With --debian only the packages of Debian, python3 among them.
#
# With --lab only what the experiments of dunlin-lab compare and read captures
# with: mosquitto, mosquitto-clients, tshark, iproute2, libcoap3-bin, libcoap3-dev, in
# target/peers/coap the clients of CoAP in lab/coap, where there is a C compiler, and in
# target/peers/artemis ActiveMQ Artemis from Maven, where there are a JDK and maven.
#
# With --helm only what the check of the Helm chart needs: helm, from the Go module proxy,
# in target/peers, which takes minutes to build, and kubernetes-validate in target/venv.
#
# With --page only what the test of the broker's page needs: chromium-headless-shell (300
# MB), pngquant, which makes the book's pictures small, and fonts-inter, their font.
#
# Each step is quick when its result is there. A step that cannot be done is
# skipped with one line that says why; the tests that need it skip themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

# A program that replaced /dev/null by a file leaves a machine on which nothing works
# as it should.
if [ ! -c /dev/null ]; then
    echo 'setup: /dev/null is not a device but a file, and what follows would fail in' \
        'strange ways. As root: rm -f /dev/null && mknod -m 666 /dev/null c 1 3' >&2
    exit 1
fi

# Longest that one download may take.
readonly SECONDS_MAX=300
readonly BUILD_SECONDS_MAX=1200
readonly RMQTTD_SECONDS_MAX=5400
# Versions of the brokers that were tried.
readonly MQTTV5=0.29.10
readonly RMQTTD=0.24.0
# Version of the server that the log of a partition was tried with.
readonly NATS_SERVER=2.15.2
# Version of Helm that the chart is checked with.
readonly HELM=3.22.0

skip() { printf 'setup: skipped: %s\n' "$*" >&2; }
done_with() { printf 'setup: %s\n' "$*"; }

# Installing a daemon starts it on Debian. The policy file forbids that while
# packages are unpacked, so that port 1883 stays free for the tests.
policy=/usr/sbin/policy-rc.d
forbid_daemons() {
    [ -e "$policy" ] && return
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive timeout "$SECONDS_MAX" \
        apt-get install -y -qq --no-install-recommends "$@" >target/setup-apt.log 2>&1
}

# Both for tests and for experiments.
lab_packages() {
    command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ] || missing+=(mosquitto)
    command -v mosquitto_pub >/dev/null || missing+=(mosquitto-clients)
    command -v tshark >/dev/null || missing+=(tshark)
    command -v ip >/dev/null || [ -x /usr/sbin/ip ] || missing+=(iproute2)
    command -v coap-client-openssl >/dev/null || command -v coap-client >/dev/null ||
        missing+=(libcoap3-bin)
    [ -e /usr/include/coap3/coap.h ] || missing+=(libcoap3-dev)
}

page_packages() {
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
        missing+=(chromium-headless-shell)
    command -v pngquant >/dev/null || missing+=(pngquant)
    [ -d /usr/share/fonts/opentype/inter ] || missing+=(fonts-inter)
    command -v openssl >/dev/null || missing+=(openssl)
}

test_packages() {
    command -v openssl >/dev/null || missing+=(openssl)
    command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || missing+=(haproxy)
    command -v promtool >/dev/null || missing+=(prometheus)
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
    command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ] || missing+=(nats-server)
    command -v slapd >/dev/null || [ -x /usr/sbin/slapd ] || missing+=(slapd)
    command -v qemu-system-arm >/dev/null || missing+=(qemu-system-arm)
    command -v arm-none-eabi-gcc >/dev/null ||
        missing+=(gcc-arm-none-eabi libnewlib-arm-none-eabi)
    command -v musl-gcc >/dev/null || missing+=(musl-tools)
    command -v javac >/dev/null || missing+=(default-jdk-headless)
    command -v mvn >/dev/null || missing+=(maven)
    [ -e /usr/include/proton/container.hpp ] || missing+=(libqpid-proton-cpp12-dev)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    # What qpid-proton is built with.
    python3 -c 'import os, sysconfig as s; os.stat(s.get_paths()["include"] + "/Python.h")' \
        2>/dev/null || missing+=(python3-dev)
    [ -e /usr/include/openssl/ssl.h ] || missing+=(libssl-dev)
}

debian_packages() {
    local missing=()
    case "${1:-}" in
    --page) page_packages ;;
    --helm) ;;
    --lab) lab_packages ;;
    *)
        lab_packages
        test_packages
        ;;
    esac
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    if ! command -v apt-get >/dev/null; then
        skip "${missing[*]}: not installed, and this is no Debian"
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        skip "${missing[*]}: not installed; as root: apt-get install ${missing[*]}"
        return
    fi
    forbid_daemons
    if apt_install "${missing[@]}" ||
        { timeout "$SECONDS_MAX" apt-get update -qq >/dev/null 2>&1 && apt_install "${missing[@]}"; }; then
        done_with "installed ${missing[*]}"
    else
        skip "${missing[*]}: apt-get failed, see target/setup-apt.log"
        return
    fi
    # Where systemd runs, the policy holds until the next boot only.
    local daemon
    for daemon in mosquitto prometheus haproxy postgresql nats-server slapd; do
        case " ${missing[*]} " in
        *" $daemon "*)
            if [ -d /run/systemd/system ]; then
                systemctl disable --now --quiet "$daemon.service" || true
            fi
            ;;
        esac
    done
}

python_environment() {
    local python=target/venv/bin/python
    local packages='paho-mqtt, aioquic, qpid-proton, openapi-spec-validator'
    if "$python" -c 'import aioquic, openapi_spec_validator, paho.mqtt, proton; assert paho.mqtt.__version__ >= "2"' 2>/dev/null; then
        return
    fi
    if ! command -v python3 >/dev/null; then
        skip "$packages: no python3"
    elif ! python3 -m venv target/venv >target/setup-venv.log 2>&1; then
        skip "$packages: see target/setup-venv.log"
    else
        python_package 'paho-mqtt>=2.1,<3'
        python_package 'aioquic>=1.2,<2'
        python_package 'python-qpid-proton==0.40.0'
        python_package 'openapi-spec-validator>=0.7,<1'
    fi
}

python_package() {
    if timeout "$SECONDS_MAX" target/venv/bin/python -m pip install --quiet \
        --disable-pip-version-check "$1" >>target/setup-venv.log 2>&1; then
        done_with "installed $1 into target/venv"
    else
        skip "$1: see target/setup-venv.log"
    fi
}

node_packages() {
    if [ -d target/interop/node_modules/mqtt ] && [ -d target/interop/node_modules/rhea ]; then
        return
    fi
    if ! command -v npm >/dev/null; then
        skip 'MQTT.js, rhea: no npm'
        return
    fi
    mkdir -p target/interop
    if timeout "$SECONDS_MAX" npm install --prefix target/interop --silent --no-audit --no-fund \
        'mqtt@^5.10' 'rhea@^3.0' >target/setup-npm.log 2>&1; then
        done_with 'installed MQTT.js and rhea into target/interop'
    else
        skip 'MQTT.js, rhea: see target/setup-npm.log'
    fi
}

java_packages() {
    local jars=target/interop-java/jars
    # A new version in the list is fetched again.
    if [ "$jars/done" -nt interop/amqp/pom.xml ]; then
        return
    fi
    if ! command -v mvn >/dev/null; then
        skip 'protonj2-test-driver: no maven'
        return
    fi
    rm -rf "$jars"
    if timeout "$SECONDS_MAX" mvn -q -B -f interop/amqp/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$jars" >target/setup-mvn.log 2>&1; then
        touch "$jars/done"
        done_with 'copied the jars of interop/amqp into target/interop-java'
    else
        skip 'protonj2-test-driver: see target/setup-mvn.log'
    fi
}

kafka_jars() {
    local jars=target/kafka
    if [ "$jars/done" -nt scripts/sink/kafka/pom.xml ]; then
        return
    fi
    if ! command -v mvn >/dev/null; then
        skip 'Kafka: no maven'
        return
    fi
    rm -rf "$jars"
    if timeout "$SECONDS_MAX" mvn -q -B -f scripts/sink/kafka/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$jars" >target/setup-kafka.log 2>&1; then
        touch "$jars/done"
        done_with "copied Kafka's jars into $jars"
    else
        skip 'Kafka: see target/setup-kafka.log'
    fi
}

artemis() {
    local folder="${CARGO_TARGET_DIR:-target}/peers/artemis"
    if [ "$folder/classes/Embedded.class" -nt bench/artemis/Embedded.java ]; then
        return
    fi
    if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
        skip 'Artemis: no JDK or no maven'
        return
    fi
    mkdir -p "$folder/classes"
    if timeout "$SECONDS_MAX" mvn -q -B -f bench/artemis/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$(realpath "$folder")/lib" >target/setup-artemis.log 2>&1 &&
        javac -nowarn -cp "$folder/lib/*" -d "$folder/classes" bench/artemis/Embedded.java \
            >>target/setup-artemis.log 2>&1; then
        done_with "installed Artemis into $folder"
    else
        skip 'Artemis: see target/setup-artemis.log'
    fi
}

# HiveMQ CE, for the bridge.
hivemq() {
    local folder="${CARGO_TARGET_DIR:-target}/peers/hivemq" source=scripts/interop/hivemq
    if [ "$folder/classes/Embedded.class" -nt "$source/Embedded.java" ] &&
        [ "$folder/classes/Embedded.class" -nt "$source/pom.xml" ]; then
        return
    fi
    if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
        skip 'HiveMQ CE: no JDK or no maven'
        return
    fi
    rm -rf "$folder"
    mkdir -p "$folder/classes"
    if timeout "$SECONDS_MAX" mvn -q -B -f "$source/pom.xml" dependency:copy-dependencies \
        "-DoutputDirectory=$(realpath "$folder")/lib" >target/setup-hivemq.log 2>&1 &&
        javac -nowarn -cp "$folder/lib/*" -d "$folder/classes" "$source/Embedded.java" \
            >>target/setup-hivemq.log 2>&1; then
        done_with "installed HiveMQ CE into $folder"
    else
        skip 'HiveMQ CE: see target/setup-hivemq.log'
    fi
}

# Clients of CoAP by libcoap, for the experiments.
coap_peer() {
    local peer="${CARGO_TARGET_DIR:-target}/peers/coap/coap-peer"
    if [ -x "$peer" ] && [ -z "$(find lab/coap -name '*.[ch]' -newer "$peer")" ]; then
        return
    fi
    if ! command -v cc >/dev/null || [ ! -e /usr/include/coap3/coap.h ]; then
        skip 'coap-peer: no C compiler, or no libcoap3-dev'
        return
    fi
    mkdir -p "$(dirname "$peer")"
    if cc -O2 -Wall -Wextra -o "$peer" lab/coap/*.c -lcoap-3-openssl >target/setup-coap.log 2>&1; then
        done_with "built $peer"
    else
        skip 'coap-peer: see target/setup-coap.log'
    fi
}

# A compiler for the processor of the firmware.
thumb() {
    local folder="${CARGO_TARGET_DIR:-target}/thumb"
    if [ -e "$folder/env" ] ||
        rustup target list --installed 2>/dev/null | grep -qx thumbv7em-none-eabihf; then
        return
    fi
    if scripts/mcu/toolchain.sh "$folder" >target/setup-thumb.log 2>&1; then
        done_with "unpacked a compiler for the Cortex-M4 into $folder"
    else
        skip 'a compiler for the Cortex-M4: see target/setup-thumb.log'
    fi
}

# Debian's is too old for the log of a partition.
nats_server() {
    local folder="${CARGO_TARGET_DIR:-target}/peers/bin" go
    if [ "$("$folder/nats-server" --version 2>/dev/null)" = "nats-server: v$NATS_SERVER" ]; then
        return
    fi
    if ! go="$(PATH="$PATH:/usr/local/go/bin" command -v go)"; then
        skip "nats-server $NATS_SERVER: Go is not installed"
        return
    fi
    mkdir -p "$folder"
    if GOBIN="$(realpath "$folder")" timeout "$BUILD_SECONDS_MAX" \
        "$go" install "github.com/nats-io/nats-server/v2@v$NATS_SERVER" \
        >target/setup-nats.log 2>&1; then
        done_with "installed nats-server $NATS_SERVER into $folder"
    else
        skip "nats-server $NATS_SERVER: see target/setup-nats.log"
    fi
}

chart_tools() {
    local folder="${CARGO_TARGET_DIR:-target}/peers/bin" go
    if ! command -v helm >/dev/null && [ ! -x "$folder/helm" ]; then
        mkdir -p "$folder"
        if ! go="$(PATH="$PATH:/usr/local/go/bin" command -v go)"; then
            skip "helm $HELM: Go is not installed"
        elif GOBIN="$(realpath "$folder")" timeout "$BUILD_SECONDS_MAX" \
            "$go" install "helm.sh/helm/v3/cmd/helm@v$HELM" >target/setup-helm.log 2>&1; then
            done_with "installed helm $HELM into $folder"
        else
            skip "helm $HELM: see target/setup-helm.log"
        fi
    fi
    python_environment
    if ! target/venv/bin/python -c 'import kubernetes_validate, yaml' 2>/dev/null; then
        python_package 'kubernetes-validate>=1.30,<2'
    fi
}

# Where a program of Cargo may be, the installed ones included.
has_program() {
    command -v "$1" >/dev/null || [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/$1" ] || [ -x "$peers/bin/$1" ]
}

cargo_brokers() {
    local peers="${CARGO_TARGET_DIR:-target}/peers"
    if ! has_program mqttv5; then
        if timeout "$BUILD_SECONDS_MAX" cargo install mqttv5-cli --version "$MQTTV5" --debug \
            --root "$peers" --target-dir "$peers/build" >target/setup-cargo.log 2>&1; then
            done_with "installed mqttv5 into $peers"
            rm -rf "$peers/build"
        else
            skip 'mqttv5: see target/setup-cargo.log'
        fi
    fi
    if has_program rmqttd; then
        return
    fi
    local install="cargo install rmqttd --version $RMQTTD --locked --root $peers"
    if [ "${1:-}" != --rmqttd ]; then
        skip "rmqttd: half an hour to build; make interop BROKERS=all, or $install"
    elif ! command -v protoc >/dev/null; then
        skip 'rmqttd: needs protoc (package protobuf-compiler)'
    elif timeout "$RMQTTD_SECONDS_MAX" $install --target-dir "$peers/build" \
        >target/setup-rmqttd.log 2>&1; then
        done_with "installed rmqttd into $peers"
        rm -rf "$peers/build"
    else
        skip 'rmqttd: see target/setup-rmqttd.log; it needs Rust 1.94'
    fi
}

mkdir -p target
debian_packages "${1:-}"
case "${1:-}" in
--debian | --page) exit ;;
--helm)
    chart_tools
    exit
    ;;
--lab)
    coap_peer
    artemis
    exit
    ;;
esac
python_environment
node_packages
java_packages
kafka_jars
nats_server
coap_peer
thumb
if [ "${1:-}" = --brokers ]; then
    cargo_brokers "${2:-}"
    hivemq
fi
