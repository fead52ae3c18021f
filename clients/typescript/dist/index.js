/** Quell from Node: send events, work on batches, check what was pushed. Nothing but Node itself is used. */
export { Quell } from "./client.js";
export { AlreadySettled, ApiError, CallCancelled, Conflict, ConnectionFailed, Forbidden, GaveWay, Interrupted, InvalidRequest, LaneFull, LaneNotIdle, LeaseLost, NotFound, NotPulled, OverLimit, QuellError, QueueFull, ServerError, SignatureError, StaleToken, StepUnknown, Superseded, TooLarge, TooManyRequests, Unauthorized, Unavailable, UnknownOutcome, UnknownQueue, } from "./errors.js";
export { Heartbeat } from "./heartbeat.js";
export { Failed, Release, Retry, Succeeded } from "./outcome.js";
export { Run } from "./run.js";
export { readBatch } from "./shapes.js";
export { verify } from "./signature.js";
export { Worker } from "./worker.js";
