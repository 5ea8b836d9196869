"""Record tests/golden/ha/haStatus-5.3.3.json: what a pair of RocketMQ's brokers reports, and how its tool prints that.

    python -m tests.interop.record_ha_status

A master and a slave of RocketMQ 5.3.3 respond to GET_BROKER_HA_STATUS (907). RocketMQ's mqadmin of the same version
then gets exactly these bodies from a scripted peer, so that its output belongs to them. A third body has a slave that
is behind. `{broker}` stands for the address of the peer.
"""

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from skylarkmq.broker.app.in_process import loop_in_a_thread, wait
from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer
from tests.harness.ha_status import PATH
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient
from tests.interop.brokers import apache_commands, daemon, running_broker, wait_until
from tests.interop.mqadmin_process import MqadminProcess

VERSION: Final = "5.3.3"
NAME: Final = "broker-a"
SENT: Final = 20


def bodies(home: Path) -> dict[str, str]:
    """Return the bodies of a master and of its slave."""
    with ExitStack() as stack:
        (home / "master").mkdir()
        (home / "slave").mkdir()
        role = {"brokerName": NAME, "brokerRole": "SYNC_MASTER"}
        master = stack.enter_context(running_broker(f"apache-{VERSION}", home / "master", role))
        namesrv_port = int(master.namesrv.rpartition(":")[2])
        slave_port, ha_port = free_ports(2)
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "haListenPort": ha_port, "brokerName": NAME}
        _, (command, environment) = apache_commands(VERSION, home / "slave", namesrv_port, slave_port, settings)
        stack.enter_context(daemon(command, environment, home / "slave"))
        master.create_topic("Orders", 1)
        for number in range(SENT):
            master.send("Orders", 0, {}, b"message %d" % number)

        def is_copied() -> bool:
            info = HARuntimeInfo.decode(reported(master.broker_address))
            return any(slave.diff == 0 and slave.slave_ack_offset for slave in info.ha_connection_info)

        wait_until(is_copied, "the slave has everything")
        found = {"master": master.broker_address, "slave": f"{LOOPBACK}:{slave_port}"}
        return {name: reported(address).decode() for name, address in found.items()}


def reported(address: str) -> bytes:
    """Return the body of the response of a broker."""
    host, _, port = address.partition(":")
    with RawClient(host, int(port)) as client:
        response = client.call(RequestCode.GET_BROKER_HA_STATUS)
        assert response.code == 0, response
        return bytes(response.body)


def behind(master: str) -> str:
    """Return the body of a master with a second slave, which is behind and reads fast."""
    info = json.loads(master)
    (slave,) = info["haConnectionInfo"]
    second = slave | {"addr": "10.0.0.30:40000", "diff": 300 << 20, "inSync": False, "slaveAckOffset": 12345}
    info["haConnectionInfo"] += [second | {"transferFromWhere": 12345, "transferredByteInSecond": 123_456_789}]
    return json.dumps(info, separators=(",", ":"))


def printed(home: Path, body: str) -> str:
    """Return what RocketMQ's tool prints for a body."""
    with loop_in_a_thread() as loop:
        peer = Peer()
        wait(loop, peer.listen())
        peer.on(RequestCode.GET_BROKER_HA_STATUS, lambda *_: RemotingCommand.response(body=body.encode()))
        tool = MqadminProcess(VERSION, home, peer.address)
        output = tool.run("haStatus", "-b", peer.address)
        tool.stop()
        wait(loop, peer.stop())
        assert output.code == 0, output
        return output.text.replace(peer.address, "{broker}")


def main() -> None:
    """Write the file."""
    os.environ["TZ"] = "UTC"
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        found = bodies(home)
        found["master with a slave behind"] = behind(found["master"])
        cases = [
            {"case": case, "body": body, "output": printed(home / f"tool-{number}", body)}
            for number, (case, body) in enumerate(found.items())
        ]
    PATH.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
