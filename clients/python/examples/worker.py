import logging, os, sys
from quell_client import Quell, Run, Worker

logging.basicConfig(level=logging.INFO)

def handle(run: Run) -> object:
    texts = [event.payload["text"] for event in run.events]
    answer = run.step("answer", lambda: f"you said: {', '.join(texts)}")  # kept over crashes
    run.hold()  # newer messages? then the run starts over with all of them
    print(run.key, answer, flush=True)
    return {"answer": answer}

quell = Quell(os.environ.get("QUELL_URL", "http://127.0.0.1:7717"), os.environ.get("QUELL_TOKEN"))
Worker(quell, sys.argv[1], handle, concurrency=10).run()
