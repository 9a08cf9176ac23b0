"""The memory systems: working, episodic and long-term."""

from scommer.memory.balanced import BalancedMemory
from scommer.memory.episodic import EpisodicMemory
from scommer.memory.long_term import LongTermMemory
from scommer.memory.working import WorkingMemory

__all__ = ["BalancedMemory", "EpisodicMemory", "LongTermMemory", "WorkingMemory"]
