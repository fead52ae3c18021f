-- A thing whose price is wanted. Its row is the first that is written by whoever changes anything of it, so that those
-- who do so at once take turns, and nobody writes for a thing that was removed meanwhile.
CREATE TABLE quell.prices_intake (
    tenant text NOT NULL,
    id text NOT NULL,
    year text,
    mintmark text,
    denomination text,
    series text,
    title text,
    currency text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- The last collection of an intake from a source. A claim with an older token changes nothing here, and so nothing else.
CREATE TABLE quell.prices_collected (
    tenant text NOT NULL,
    intake text NOT NULL,
    source text NOT NULL,
    token bigint NOT NULL,
    run text NOT NULL,
    at bigint NOT NULL,
    found bigint NOT NULL,
    -- Of the items that were found: those that are points, those that were not known before, and those that took the place of
    -- a weaker match. The rest of the points had been seen before.
    points_kept bigint NOT NULL,
    points_new bigint NOT NULL,
    points_replaced bigint NOT NULL,
    unmatched bigint NOT NULL,
    skipped bigint NOT NULL,
    pages bigint NOT NULL,
    -- 0 or 1: all of it came from the cache.
    cached bigint NOT NULL,
    PRIMARY KEY (tenant, intake, source)
);
CREATE INDEX prices_collected_at ON quell.prices_collected (at);

-- One price of one item, kept once however often it is met.
CREATE TABLE quell.prices_point (
    tenant text NOT NULL,
    intake text NOT NULL,
    source text NOT NULL,
    dedupe_key text NOT NULL,
    external_id text,
    url text,
    title text NOT NULL,
    -- In the smallest unit of the currency.
    cents bigint NOT NULL,
    currency text NOT NULL,
    -- What the source converted it from.
    original_cents bigint,
    original_currency text,
    -- 'sold', 'ask' or 'bid'.
    price_type text NOT NULL,
    -- When it was sold or listed, if the source said.
    dated_at bigint,
    match_strength bigint NOT NULL,
    first_seen_at bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    -- The runs that found it first, and that last found a better match.
    first_run text NOT NULL,
    changed_run text NOT NULL,
    -- Of an item with an id of its own: how many prices it has been seen with, and the latest of them.
    observations bigint NOT NULL,
    latest_cents bigint,
    latest_currency text,
    latest_at bigint,
    PRIMARY KEY (tenant, intake, source, dedupe_key)
);
CREATE INDEX prices_point_seen ON quell.prices_point (tenant, intake, last_seen_at);

-- The prices that an item with an id of its own has been seen with, in order.
CREATE TABLE quell.prices_observation (
    tenant text NOT NULL,
    intake text NOT NULL,
    source text NOT NULL,
    dedupe_key text NOT NULL,
    n bigint NOT NULL,
    at bigint NOT NULL,
    cents bigint NOT NULL,
    currency text NOT NULL,
    run text NOT NULL,
    PRIMARY KEY (tenant, intake, source, dedupe_key, n)
);

-- What an intake is worth, as last computed. Without points that count there is a row without a value.
CREATE TABLE quell.prices_valuation (
    tenant text NOT NULL,
    intake text NOT NULL,
    currency text NOT NULL,
    cents bigint,
    low_cents bigint,
    high_cents bigint,
    points bigint NOT NULL,
    sold bigint NOT NULL,
    ask bigint NOT NULL,
    bid bigint NOT NULL,
    other_currency bigint NOT NULL,
    as_of bigint NOT NULL,
    run text NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (tenant, intake)
);
