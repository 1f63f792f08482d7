DissectorTable.get("quic.proto"):add("mqtt", Dissector.get("mqtt"))
DissectorTable.get("quic.proto"):add("MQTT-next", Dissector.get("mqtt"))
