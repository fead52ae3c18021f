/**
 * What can go wrong with a call, one class for each thing a caller does differently.
 *
 * The server answers mistakes with problem documents (RFC 9457); `readProblem` makes the right error of one. Whoever only wants to
 * know whether to try again looks at `temporary`. Every text says what happened, where, and what to do; none holds a payload or a
 * token.
 */
/** What is shown of an answer that is no problem document: a proxy's page, say. */
const SHOWN_CHARACTERS = 200;
/** A server that asks for more patience than this is not waited for: the caller decides. */
const RETRY_AFTER_MAX_MS = 3_600_000;
/** Anything that this package throws by itself. */
export class QuellError extends Error {
    /** The same call may succeed later. All calls of this package can be repeated: they carry an id or a token. */
    temporary = false;
    /** The ids of the events that an append was about: sending them again with the same ids is always safe. */
    eventIds = [];
    constructor(message, options) {
        super(message, options);
        this.name = new.target.name;
    }
}
/** No whole answer came: nobody knows whether the call was done. Repeat it with the same id or token. */
export class ConnectionFailed extends QuellError {
    temporary = true;
}
/** The call was cut short by a signal; nobody knows whether it was done. */
export class CallCancelled extends QuellError {
}
/** The server said no. `code` is what programs compare, `detail` is for people. */
export class ApiError extends QuellError {
    status;
    code;
    detail;
    place;
    retryAfterMs;
    constructor(status, code, detail, 
    /** The part of the request that is meant. */
    place = null, 
    /** If the server asked for a pause. */
    retryAfterMs = null) {
        super(`${status} ${code}: ${detail}${place === null ? "" : ` (at ${place})`}`);
        this.status = status;
        this.code = code;
        this.detail = detail;
        this.place = place;
        this.retryAfterMs = retryAfterMs;
    }
}
/** The request is not as it should be; `place` names the part that is meant. */
export class InvalidRequest extends ApiError {
}
/** No token, or one that is not known. */
export class Unauthorized extends ApiError {
}
/** The token does not allow this. */
export class Forbidden extends ApiError {
}
/** It does not exist, or is somebody else's. */
export class NotFound extends ApiError {
}
/** The queue is not configured on the server. */
export class UnknownQueue extends NotFound {
}
/** The id is known with another payload. */
export class Conflict extends ApiError {
}
/** `onlyIfIdle` was asked for, and the key has something to do. */
export class LaneNotIdle extends ApiError {
}
/** The server handles this queue itself: set `handler = "pull"`. */
export class NotPulled extends ApiError {
}
/** The token does not hold the run any more: its lease ran out, and somebody else has it. */
export class StaleToken extends ApiError {
}
/** The attempt was ended before, in another way. */
export class AlreadySettled extends ApiError {
}
/** Over a limit of size. */
export class TooLarge extends ApiError {
}
/** Over another limit. */
export class OverLimit extends ApiError {
}
/** Later: nothing was done. */
export class TooManyRequests extends ApiError {
    temporary = true;
}
/** The key has too many events that wait. */
export class LaneFull extends TooManyRequests {
}
/** The queue has too many events that wait. */
export class QueueFull extends TooManyRequests {
}
/** The server or its store is away for the moment: nothing was done. */
export class Unavailable extends ApiError {
    temporary = true;
}
/** The store cannot say whether it was done: repeat it with the same id or token. */
export class UnknownOutcome extends Unavailable {
}
/** The server or its store is not as it should be; its log says more. */
export class ServerError extends ApiError {
}
/** The attempt is over, because its work is not wanted any more. Nothing is settled for it, and no attempt is lost. */
export class GaveWay extends QuellError {
}
/** Newer events have arrived: they and this batch are the next one. */
export class Superseded extends GaveWay {
}
/** Newer events or an operator want the run to stop. */
export class Interrupted extends GaveWay {
}
/** The run is not this worker's any more; whatever its handler does counts for nothing. */
export class LeaseLost extends QuellError {
}
/** An earlier attempt began a step that must not be done twice, and nobody knows whether it did it. */
export class StepUnknown extends QuellError {
    step;
    constructor(step) {
        super(`step ${JSON.stringify(step)} was begun by an earlier attempt that left no result: it may have happened; ` +
            "ask the other side or a person, then store a value for it or fail");
        this.step = step;
    }
}
/** A delivery that is not proven. `reason` is a word for programs; strangers should be told nothing but 401. */
export class SignatureError extends QuellError {
    reason;
    detail;
    constructor(reason, detail) {
        super(`${reason}: ${detail}`);
        this.reason = reason;
        this.detail = detail;
    }
}
const BY_CODE = {
    invalid: InvalidRequest,
    unauthorized: Unauthorized,
    forbidden: Forbidden,
    "not-found": NotFound,
    "unknown-queue": UnknownQueue,
    "method-not-allowed": InvalidRequest,
    "too-slow": Unavailable,
    conflict: Conflict,
    "lane-not-idle": LaneNotIdle,
    "not-pulled": NotPulled,
    "stale-token": StaleToken,
    "already-settled": AlreadySettled,
    "too-large": TooLarge,
    "over-limit": OverLimit,
    "lane-full": LaneFull,
    "queue-full": QueueFull,
    "too-many-requests": TooManyRequests,
    unavailable: Unavailable,
    "unknown-outcome": UnknownOutcome,
    "too-many-connections": Unavailable,
};
/** The error for an answer that is no success. Pure. */
export function readProblem(status, retryAfter, body) {
    const told = readDocument(body);
    const code = typeof told.code === "string" ? told.code : `http-${status}`;
    const shown = body.slice(0, SHOWN_CHARACTERS).split(/\s+/).join(" ").trim();
    const detail = typeof told.detail === "string" ? told.detail : shown || "the answer has no text";
    if (code === "superseded")
        return new Superseded(detail);
    const place = typeof told.place === "string" ? told.place : null;
    const kind = Object.hasOwn(BY_CODE, code) ? BY_CODE[code] : byStatus(status);
    return new kind(status, code, detail, place, readRetryAfter(retryAfter));
}
function byStatus(status) {
    // A proxy in front answers in its own words: 502 and 504 mean that nobody knows what the server did.
    if (status === 502 || status === 504)
        return UnknownOutcome;
    if (status === 503)
        return Unavailable;
    if (status === 429)
        return TooManyRequests;
    if (status === 401)
        return Unauthorized;
    if (status === 403)
        return Forbidden;
    if (status === 404)
        return NotFound;
    if (status === 413)
        return TooLarge;
    return status >= 500 ? ServerError : InvalidRequest;
}
function readDocument(body) {
    try {
        const read = JSON.parse(body);
        return typeof read === "object" && read !== null ? read : {};
    }
    catch {
        return {};
    }
}
function readRetryAfter(text) {
    return text !== null && /^\d+$/.test(text.trim()) ? Math.min(Number(text) * 1000, RETRY_AFTER_MAX_MS) : null;
}
