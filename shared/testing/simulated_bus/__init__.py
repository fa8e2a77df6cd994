"""A NATS server in memory, below our own client code: what runs over it is the real bus, with every fault of a server and a network on demand.

The server's answers are those of JetStream for what `shared.bus` asks of it; one body of contract tests holds it to the real one. Time is the event
loop's and choices come from the generator it is given, so one seed is one history. `SimulatedBroker` is all that a test of
the whole needs, `DecodedBroker` what a test of one service wants besides.
"""

from shared.testing.simulated_bus.broker import Fault, Publish, SimulatedBroker
from shared.testing.simulated_bus.decoded import DecodedBroker
from shared.testing.simulated_bus.stream import SimulatedStream, StoredMessage

__all__ = ["DecodedBroker", "Fault", "Publish", "SimulatedBroker", "SimulatedStream", "StoredMessage"]
