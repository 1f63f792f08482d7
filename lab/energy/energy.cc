// SPDX-License-Identifier: GPL-2.0-only
//
// Energy of a station on Wi-Fi that sends and receives given datagrams, by the models
// of ns-3 (WifiRadioEnergyModel, BasicEnergySource): `energy FILE`, with a line
// `SECONDS up|down BYTES` for each IP packet, as the station sends or is sent it.
// Prints a line of JSON: joules from the first packet to the last, and what of them a
// silent station would have taken.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ns3/basic-energy-source-helper.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/wifi-module.h"
#include "ns3/wifi-radio-energy-model-helper.h"

using namespace ns3;

namespace {

// Headers of IP and UDP.
constexpr uint32_t kHeaders = 28;
// Association and ARP come before.
constexpr double kStart = 2.0;
constexpr uint16_t kPort = 9;

struct Datagram {
    double at;
    bool up;
    uint32_t bytes;
};

uint32_t arrived = 0;

void Receive(Ptr<Socket> socket) {
    while (socket->Recv()) {
        ++arrived;
    }
}

void Send(Ptr<Socket> socket, uint32_t bytes) {
    socket->Send(Create<Packet>(bytes > kHeaders ? bytes - kHeaders : 1));
}

void Note(Ptr<DeviceEnergyModel> model, double* joules) {
    *joules = model->GetTotalEnergyConsumption();
}

std::vector<Datagram> Read(const char* path) {
    std::ifstream file(path);
    std::vector<Datagram> packets;
    std::string way;
    Datagram packet{};
    while (file >> packet.at >> way >> packet.bytes) {
        packet.up = way == "up";
        packets.push_back(packet);
    }
    return packets;
}

Ptr<Socket> Open(Ptr<Node> node, Ipv4Address peer) {
    auto socket = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
    socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort));
    socket->Connect(InetSocketAddress(peer, kPort));
    socket->SetRecvCallback(MakeCallback(&Receive));
    return socket;
}

}  // namespace

int main(int argc, char* argv[]) {
    const auto packets = argc == 2 ? Read(argv[1]) : std::vector<Datagram>{};
    if (packets.empty()) {
        std::cerr << "energy: needs a file with lines SECONDS up|down BYTES\n";
        return 1;
    }
    NodeContainer nodes(2);
    YansWifiPhyHelper phy;
    phy.SetChannel(YansWifiChannelHelper::Default().Create());
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211n);
    WifiMacHelper mac;
    const Ssid ssid("energy");
    mac.SetType("ns3::StaWifiMac", "Ssid", SsidValue(ssid));
    NetDeviceContainer devices = wifi.Install(phy, mac, nodes.Get(0));
    mac.SetType("ns3::ApWifiMac", "Ssid", SsidValue(ssid));
    const NetDeviceContainer station = devices;
    devices.Add(wifi.Install(phy, mac, nodes.Get(1)));
    auto places = CreateObject<ListPositionAllocator>();
    places->Add(Vector(0, 0, 0));
    places->Add(Vector(5, 0, 0));
    MobilityHelper mobility;
    mobility.SetPositionAllocator(places);
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    const auto interfaces = addresses.Assign(devices);
    BasicEnergySourceHelper source;
    source.Set("BasicEnergySourceInitialEnergyJ", DoubleValue(1e6));
    const auto sources = source.Install(nodes.Get(0));
    const auto model = WifiRadioEnergyModelHelper().Install(station, sources).Get(0);

    const auto from = Open(nodes.Get(0), interfaces.GetAddress(1));
    const auto to = Open(nodes.Get(1), interfaces.GetAddress(0));
    Simulator::Schedule(Seconds(kStart / 2), &Send, from, kHeaders + 1);
    Simulator::Schedule(Seconds(kStart / 2 + 0.1), &Send, to, kHeaders + 1);
    double bytes = 0, last = 0, before = 0, after = 0;
    for (const auto& packet : packets) {
        const double at = packet.at - packets.front().at;
        Simulator::Schedule(Seconds(kStart + at), &Send, packet.up ? from : to, packet.bytes);
        bytes += packet.bytes;
        last = std::max(last, at);
    }
    Simulator::Schedule(Seconds(kStart), &Note, model, &before);
    Simulator::Schedule(Seconds(kStart + last), &Note, model, &after);
    Simulator::Stop(Seconds(kStart + last + 0.5));
    Simulator::Run();
    DoubleValue current, voltage;
    model->GetAttribute("IdleCurrentA", current);
    sources.Get(0)->GetAttribute("BasicEnergySupplyVoltageV", voltage);
    const bool complete = arrived == packets.size() + 2;
    std::cout << "{\"joules\":" << after - before
              << ",\"idle_joules\":" << current.Get() * voltage.Get() * last
              << ",\"seconds\":" << last << ",\"packets\":" << packets.size()
              << ",\"bytes\":" << bytes << ",\"arrived\":" << arrived - 2 << "}\n";
    Simulator::Destroy();
    return complete ? 0 : 2;
}
