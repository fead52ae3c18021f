/**
 * What can go wrong with a call, one class for each thing a caller does differently.
 *
 * The server answers mistakes with problem documents (RFC 9457); `readProblem` makes the right error of one. Whoever only wants to
 * know whether to try again looks at `temporary`. Every text says what happened, where, and what to do; none holds a payload or a
 * token.
 */
/** Anything that this package throws by itself. */
export declare class QuellError extends Error {
    /** The same call may succeed later. All calls of this package can be repeated: they carry an id or a token. */
    readonly temporary: boolean;
    /** The ids of the events that an append was about: sending them again with the same ids is always safe. */
    eventIds: readonly string[];
    constructor(message: string, options?: {
        cause?: unknown;
    });
}
/** No whole answer came: nobody knows whether the call was done. Repeat it with the same id or token. */
export declare class ConnectionFailed extends QuellError {
    readonly temporary = true;
}
/** The call was cut short by a signal; nobody knows whether it was done. */
export declare class CallCancelled extends QuellError {
}
/** The server said no. `code` is what programs compare, `detail` is for people. */
export declare class ApiError extends QuellError {
    readonly status: number;
    readonly code: string;
    readonly detail: string;
    /** The part of the request that is meant. */
    readonly place: string | null;
    /** If the server asked for a pause. */
    readonly retryAfterMs: number | null;
    constructor(status: number, code: string, detail: string, 
    /** The part of the request that is meant. */
    place?: string | null, 
    /** If the server asked for a pause. */
    retryAfterMs?: number | null);
}
/** The request is not as it should be; `place` names the part that is meant. */
export declare class InvalidRequest extends ApiError {
}
/** No token, or one that is not known. */
export declare class Unauthorized extends ApiError {
}
/** The token does not allow this. */
export declare class Forbidden extends ApiError {
}
/** It does not exist, or is somebody else's. */
export declare class NotFound extends ApiError {
}
/** The queue is not configured on the server. */
export declare class UnknownQueue extends NotFound {
}
/** The id is known with another payload. */
export declare class Conflict extends ApiError {
}
/** `onlyIfIdle` was asked for, and the key has something to do. */
export declare class LaneNotIdle extends ApiError {
}
/** The server handles this queue itself: set `handler = "pull"`. */
export declare class NotPulled extends ApiError {
}
/** The token does not hold the run any more: its lease ran out, and somebody else has it. */
export declare class StaleToken extends ApiError {
}
/** The attempt was ended before, in another way. */
export declare class AlreadySettled extends ApiError {
}
/** Over a limit of size. */
export declare class TooLarge extends ApiError {
}
/** Over another limit. */
export declare class OverLimit extends ApiError {
}
/** Later: nothing was done. */
export declare class TooManyRequests extends ApiError {
    readonly temporary = true;
}
/** The key has too many events that wait. */
export declare class LaneFull extends TooManyRequests {
}
/** The queue has too many events that wait. */
export declare class QueueFull extends TooManyRequests {
}
/** The server or its store is away for the moment: nothing was done. */
export declare class Unavailable extends ApiError {
    readonly temporary = true;
}
/** The store cannot say whether it was done: repeat it with the same id or token. */
export declare class UnknownOutcome extends Unavailable {
}
/** The server or its store is not as it should be; its log says more. */
export declare class ServerError extends ApiError {
}
/** The attempt is over, because its work is not wanted any more. Nothing is settled for it, and no attempt is lost. */
export declare class GaveWay extends QuellError {
}
/** Newer events have arrived: they and this batch are the next one. */
export declare class Superseded extends GaveWay {
}
/** Newer events or an operator want the run to stop. */
export declare class Interrupted extends GaveWay {
}
/** The run is not this worker's any more; whatever its handler does counts for nothing. */
export declare class LeaseLost extends QuellError {
}
/** An earlier attempt began a step that must not be done twice, and nobody knows whether it did it. */
export declare class StepUnknown extends QuellError {
    readonly step: string;
    constructor(step: string);
}
/** A delivery that is not proven. `reason` is a word for programs; strangers should be told nothing but 401. */
export declare class SignatureError extends QuellError {
    readonly reason: string;
    readonly detail: string;
    constructor(reason: string, detail: string);
}
/** The error for an answer that is no success. Pure. */
export declare function readProblem(status: number, retryAfter: string | null, body: string): QuellError;
