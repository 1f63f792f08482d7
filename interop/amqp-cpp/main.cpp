//! qpid-proton C++ as an AMQP 1.0 client under the scenarios of
//! scripts/interop/scenarios.py. Each scenario runs a container of its own. Debian's
//! mosquitto clients are the other end where a message changes protocol.

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/delivery_mode.hpp>
#include <proton/error_condition.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/receiver_options.hpp>
#include <proton/sender.hpp>
#include <proton/sender_options.hpp>
#include <proton/source.hpp>
#include <proton/source_options.hpp>
#include <proton/ssl.hpp>
#include <proton/target.hpp>
#include <proton/target_options.hpp>
#include <proton/tracker.hpp>
#include <proton/transport.hpp>
#include <proton/types.hpp>
#include <proton/work_queue.hpp>

namespace {

const unsigned SECONDS_MAX = 20;
const int BURST_MESSAGES = 500;
const size_t LARGE_BYTES = 200000;

std::map<std::string, std::string> arguments;

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }

template <class A, class B> void expect(const A& got, const B& want, const std::string& what) {
    if (got == want) return;
    std::ostringstream text;
    text << what << ": got " << got << ", want " << want;
    fail(text.str().substr(0, 200));
}

std::string topic() {
    static std::random_device random;
    return "interop/cpp/" + arguments["transport"] + "/" + std::to_string(random()) + std::to_string(random());
}

proton::connection_options options() {
    proton::connection_options options;
    if (arguments["transport"] == "tls") {
        options.ssl_client_options(proton::ssl_client_options(arguments["ca"], proton::ssl::VERIFY_PEER_NAME));
    }
    return options;
}

std::string url() {
    std::string scheme = arguments["transport"] == "tls" ? "amqps://" : "amqp://";
    return scheme + arguments["host"] + ":" + arguments["port"];
}

/// A connection on which a scenario happens; it ends with `done` or with a reason.
class Scene : public proton::messaging_handler {
  public:
    proton::connection_options how = options();
    std::string error;
    bool is_done = false;

    void run() {
        proton::container container(*this);
        container.run();
        if (!error.empty()) fail(error);
        if (!is_done) fail("it ended early");
    }

    void on_container_start(proton::container& container) override {
        connection = container.connect(url(), how);
    }

    void on_error(const proton::error_condition& why) override { stop(why.what()); }

    void stop(const std::string& why) {
        if (is_done || !error.empty()) return;
        error = why;
        end();
    }

    void done() {
        is_done = true;
        end();
    }

    void end() {
        // The container ends with its last connection.
        if (connection.active()) connection.close();
    }

  protected:
    proton::connection connection;
};

/// Messages from a sender to a receiver.
class Through : public Scene {
  public:
    std::string source = topic(), target = source;
    bool anonymous = false;
    proton::sender_options sending;
    proton::receiver_options receiving = proton::receiver_options().credit_window(100);
    std::vector<proton::message> messages;
    size_t wanted = 0;
    int wait_ms = 0;
    std::function<void(const proton::message&, size_t)> look = [](const proton::message&, size_t) {};

    void on_connection_open(proton::connection& open) override {
        if (wanted == 0) wanted = messages.size();
        open.open_receiver(source, receiving);
    }

    void on_receiver_open(proton::receiver&) override {
        if (anonymous) {
            connection.open_sender("", sending.target(proton::target_options().anonymous(true)));
        } else {
            connection.open_sender(target, sending);
        }
    }

    void on_sendable(proton::sender& sender) override {
        if (wait_ms > 0) {
            int wait = wait_ms;
            wait_ms = 0;
            sender.work_queue().schedule(proton::duration(wait), [this, sender]() mutable { on_sendable(sender); });
            return;
        }
        while (sent < messages.size() && sender.credit() > 0) sender.send(messages[sent++]);
    }

    void on_message(proton::delivery& delivery, proton::message& message) override {
        (void)delivery;
        try {
            look(message, got++);
        } catch (const std::exception& why) {
            return stop(why.what());
        }
        if (got == wanted) done();
    }

  private:
    size_t sent = 0, got = 0;
};

proton::message with_body(const proton::value& body) {
    proton::message message;
    message.body(body);
    return message;
}

void in_order(Through& scene, const std::vector<std::string>& bodies) {
    for (auto& body : bodies) scene.messages.push_back(with_body(body));
    scene.look = [bodies](const proton::message& message, size_t n) {
        expect(proton::get<std::string>(message.body()), bodies[n], "body");
    };
    scene.run();
}

void three(Through& scene) { in_order(scene, {"one", "", "drei \u20ac"}); }

/// Opens with a user, or is refused.
class Entry : public Scene {
  public:
    bool refused = false;
    bool is_to_be_refused = false;
    void on_connection_open(proton::connection&) override { done(); }
    void on_transport_error(proton::transport&) override {
        refused = true;
        if (is_to_be_refused) done();
    }
};

void sasl() {
    Entry anonymous, without, alice, wrong;
    anonymous.how.sasl_allowed_mechs("ANONYMOUS");
    anonymous.run();
    without.how.sasl_enabled(false);
    without.run();
    alice.how.sasl_allowed_mechs("PLAIN").sasl_allow_insecure_mechs(true).user("alice").password("wonderland");
    alice.run();
    wrong.how.sasl_allowed_mechs("PLAIN").sasl_allow_insecure_mechs(true).user("alice").password("looking-glass");
    wrong.is_to_be_refused = true;
    wrong.run();
    expect(wrong.refused, true, "a wrong password is refused");
}

void wildcard() {
    Through scene;
    scene.source = scene.target + "/+/c/#";
    std::string prefix = scene.target + "/";
    scene.anonymous = true;
    scene.wanted = 2;
    for (std::string tail : {"a/x", "a/c", "b/c/d/e", "c"}) {
        scene.messages.push_back(with_body(tail));
        scene.messages.back().to(prefix + tail);
    }
    scene.look = [](const proton::message& message, size_t n) {
        expect(proton::get<std::string>(message.body()), n == 0 ? "a/c" : "b/c/d/e", "match");
    };
    scene.run();
}

void properties() {
    Through scene;
    proton::message sent = with_body(std::vector<proton::value>{1, "two"});
    proton::uuid id = proton::uuid::random();
    sent.id(id);
    sent.correlation_id(uint64_t(7));
    sent.subject("greeting");
    sent.reply_to("answers");
    sent.content_type("text/plain");
    sent.group_id("group");
    sent.group_sequence(4);
    sent.durable(true);
    sent.priority(7);
    sent.properties().put("number", 42);
    sent.properties().put("text", "a");
    sent.message_annotations().put("x-opt-mark", "m");
    scene.messages.push_back(sent);
    scene.look = [&](const proton::message& got, size_t) {
        expect(got.id(), proton::message_id(id), "message-id");
        expect(got.correlation_id(), proton::message_id(uint64_t(7)), "correlation-id");
        expect(got.subject() + got.reply_to() + got.content_type() + got.group_id(), "greetinganswerstext/plaingroup",
            "properties");
        expect(got.group_sequence(), 4, "group-sequence");
        expect(got.durable(), true, "durable");
        expect(int(got.priority()), 7, "priority");
        expect(got.properties().get("number"), proton::scalar(42), "application property");
        expect(got.message_annotations().get("x-opt-mark"), proton::value("m"), "annotation");
        expect(got.body(), sent.body(), "body");
    };
    scene.run();
}

/// What is released or modified comes again; what is rejected does not.
class Outcomes : public Through {
  public:
    void on_message(proton::delivery& delivery, proton::message& message) override {
        std::string body = proton::get<std::string>(message.body());
        switch (step++) {
        case 0: return delivery.release();
        case 1: return delivery.modify();
        case 2: return delivery.reject();
        default:
            if (body != "second") return stop("the next: got " + body);
            delivery.accept();
            done();
        }
    }

  private:
    int step = 0;
};

/// Asks for ten messages with drain where there are four.
class Drain : public Through {
  public:
    void on_tracker_accept(proton::tracker&) override {
        if (++accepted == 4) {
            receiver.add_credit(10);
            receiver.drain();
        }
    }
    void on_receiver_open(proton::receiver& open) override {
        receiver = open;
        Through::on_receiver_open(open);
    }
    void on_message(proton::delivery&, proton::message&) override { got++; }
    void on_receiver_drain_finish(proton::receiver&) override {
        if (got != 4) return stop("messages: " + std::to_string(got));
        done();
    }

  private:
    proton::receiver receiver;
    int accepted = 0, got = 0;
};

class Refused : public Scene {
  public:
    void on_connection_open(proton::connection& open) override {
        for (auto address : {"a/#/b", "$SYS/x"}) open.open_sender(address);
    }
    void on_sender_error(proton::sender& sender) override {
        if (sender.error().name().rfind("amqp:", 0) != 0) return stop(sender.error().what());
        if (++count == 2) connection.open_sender(topic());
    }
    void on_sendable(proton::sender& sender) override { sender.send(with_body("x")); }
    void on_tracker_accept(proton::tracker&) override { done(); }

  private:
    int count = 0;
};

std::string mosquitto(const std::string& program, const std::string& options) {
    const char* port = std::getenv("INTEROP_TCP_PORT");
    return "mosquitto_" + program + " -h " + arguments["host"] + " -p " + (port ? port : "") + " -V 5 -q 1 " + options;
}

/// Publishes again and again until a client of MQTT has one.
class ToMqtt : public Scene {
  public:
    std::string at = topic(), heard;

    void listen() {
        std::string command = mosquitto("sub", "-t " + at + " -C 1 -W 15 -F %j");
        std::thread subscriber([this, command] {
            if (FILE* output = popen(command.c_str(), "r")) {
                for (int c; (c = fgetc(output)) != EOF;) heard += char(c);
                pclose(output);
            }
            has_ended = true;
        });
        std::string why;
        try {
            run();
        } catch (const std::exception& error) {
            why = error.what();
        }
        subscriber.join();
        if (!why.empty()) fail(why);
    }

    void on_connection_open(proton::connection& open) override { open.open_sender(at); }
    void on_sender_open(proton::sender& sender) override { publish(sender); }

  private:
    std::atomic<bool> has_ended{false};

    void publish(proton::sender sender) {
        if (has_ended) return done();
        proton::message message = with_body(proton::binary("payload"));
        message.inferred(true);
        message.durable(true);
        message.content_type("text/plain");
        message.reply_to("answers");
        message.properties().put("k", "v");
        if (sender.credit() > 0) sender.send(message);
        sender.work_queue().schedule(proton::duration(100), [this, sender] { publish(sender); });
    }
};

void to_mqtt() {
    ToMqtt scene;
    scene.listen();
    for (std::string part : {"\"payload\":\"payload\"", "\"qos\":1", "text/plain", "answers", "\"k\""}) {
        if (scene.heard.find(part) == std::string::npos) fail("no " + part + " in " + scene.heard);
    }
}

class FromMqtt : public Through {
  public:
    void on_receiver_open(proton::receiver&) override {
        std::string options = "-t " + source + " -m payload -D publish content-type text/plain";
        options += " -D publish response-topic answers -D publish user-property k v";
        options += " -D publish message-expiry-interval 60";
        if (std::system(mosquitto("pub", options).c_str()) != 0) stop("mosquitto_pub failed");
    }
};

void from_mqtt() {
    FromMqtt scene;
    scene.wanted = 1;
    scene.look = [&](const proton::message& got, size_t) {
        expect(std::string(proton::get<proton::binary>(got.body())), "payload", "body");
        expect(got.to() + " " + got.content_type() + " " + got.reply_to(), scene.source + " text/plain answers",
            "properties");
        expect(got.durable(), true, "durable");
        expect(got.properties().get("k"), proton::scalar("v"), "application property");
        auto left = got.ttl().milliseconds();
        expect(left > 0 && left <= 60000, true, "ttl");
    };
    scene.run();
}

std::map<std::string, std::function<void()>> scenarios() {
    std::map<std::string, std::function<void()>> all;
    all["settled"] = [] {
        Through scene;
        scene.sending.delivery_mode(proton::delivery_mode::AT_MOST_ONCE);
        three(scene);
    };
    all["unsettled"] = [] {
        Through scene;
        three(scene);
    };
    all["small-frames"] = [] {
        Through scene;
        scene.how.max_frame_size(512);
        three(scene);
    };
    all["sasl"] = sasl;
    all["large"] = [] {
        Through scene;
        in_order(scene, {std::string(LARGE_BYTES, 'x')});
    };
    all["wildcard"] = wildcard;
    all["relay"] = [] {
        Through scene;
        scene.anonymous = true;
        scene.messages.push_back(with_body("x"));
        scene.messages.back().to(scene.source);
        scene.run();
    };
    all["properties"] = properties;
    all["expiry"] = [] {
        Through scene;
        scene.messages.push_back(with_body("x"));
        scene.messages.back().ttl(proton::duration(30000));
        scene.look = [](const proton::message& got, size_t) {
            auto left = got.ttl().milliseconds();
            expect(left > 0 && left <= 30000, true, "what is left");
        };
        scene.run();
    };
    all["to-mqtt"] = to_mqtt;
    all["from-mqtt"] = from_mqtt;
    all["outcomes"] = [] {
        Outcomes scene;
        scene.receiving.auto_accept(false);
        scene.messages = {with_body("first"), with_body("second")};
        scene.receiving.credit_window(1);
        scene.run();
    };
    all["drain"] = [] {
        Drain scene;
        scene.receiving.credit_window(0);
        for (int n = 0; n < 4; n++) scene.messages.push_back(with_body("x"));
        scene.run();
    };
    all["burst"] = [] {
        Through scene;
        std::vector<std::string> bodies;
        for (int n = 0; n < BURST_MESSAGES; n++) bodies.push_back(std::to_string(n));
        in_order(scene, bodies);
    };
    all["refused"] = [] { Refused().run(); };
    all["idle"] = [] {
        Through scene;
        scene.how.idle_timeout(proton::duration(1000));
        scene.wait_ms = 4000;
        in_order(scene, {"still here"});
    };
    return all;
}

std::string running;

/// A scenario that does not end ends the program.
void late(int) {
    std::string line = "not ok " + running + ": no end in time\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) >= 0) _exit(1);
}

} // namespace

int main(int argc, char** argv) {
    for (int n = 1; n + 1 < argc; n += 2) arguments[std::string(argv[n]).substr(2)] = argv[n + 1];
    if (arguments["host"].empty()) arguments["host"] = "localhost";
    auto all = scenarios();
    std::signal(SIGALRM, late);
    std::istringstream names(std::getenv("INTEROP_SCENARIOS"));
    for (std::string name; names >> name;) {
        std::string line = "ok " + name;
        auto scenario = all.find(name);
        running = name;
        alarm(SECONDS_MAX);
        try {
            if (scenario == all.end()) {
                line = "skip " + name + ": not a scenario of this client";
            } else {
                scenario->second();
            }
        } catch (const std::exception& why) {
            line = "not ok " + name + ": " + why.what();
        }
        for (auto& c : line) c = c == '\n' ? ' ' : c;
        std::cout << line << std::endl;
    }
}
