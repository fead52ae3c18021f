"""Sends events to a queue: python send.py QUEUE KEY TEXT…

QUELL_URL and QUELL_TOKEN say where and as whom.
"""

import os
import sys

from quell_client import NewEvent, Quell

quell = Quell(os.environ.get("QUELL_URL", "http://127.0.0.1:7717"), os.environ.get("QUELL_TOKEN"))
queue, key, *texts = sys.argv[1:]
for receipt in quell.append_many(queue, [NewEvent(key, {"text": text}) for text in texts]):
    print(receipt.event_id, receipt.seq, receipt.run_id)
