"""The tables of the PostgreSQL store, how they came to be, and the statement for a query.

Used by the PostgreSQL store alone. Columns exist to be searched by; a record is kept whole beside them. What a caller
chose freely (keys, names, labels) is searched by its digest: an index of PostgreSQL refuses long values, and text
refuses the character 0.
"""

from __future__ import annotations

import hashlib
from typing import Any

from rock_env.errors import InvalidArgument
from rock_env.lifecycle import SandboxState
from rock_env.store.base import Query

__all__ = [
    "CHANGES",
    "ENDING",
    "ENVIRONMENTS",
    "IMAGES",
    "JOINING",
    "MEMBERS",
    "MIGRATIONS",
    "PLACES",
    "POOLS",
    "QUOTAS",
    "digest",
    "find_sql",
    "migrate",
]

CHANGES = "rock_changes"
"""Notified with each commit that changes a record."""
MEMBERS = "rock_members"
"""Notified when a replica joins, leaves or is declared dead."""
PLACES = "rock_places"
"""Notified when a sandbox has given its place back."""
QUOTAS = "rock_quotas"
"""Notified when a tenant's quota was changed."""
ENVIRONMENTS = "rock_envs"
"""Notified when an environment was pushed or removed."""
POOLS = "rock_pools"
"""Notified when the size of a warm pool was set."""
_LOCK = 0x524F434B
"""The advisory lock of who brings the tables up to date: "ROCK"."""
JOINING = _LOCK + 1
"""That of who becomes a member, so that two that exclude each other do not do so at once."""
ENDING = _LOCK + 2
"""That of who ends the records of dead nodes, one server at a time."""
IMAGES = _LOCK + 3
"""The first half of that of who changes a tenant's names of images; the second stands for the tenant."""

_WRITE = f"""
CREATE FUNCTION rock_write(
    ids text[], tenants text[], keys bytea[], states text[], environments bytea[], expected bigint[],
    tokens bytea[], labels bytea[], records bytea[], snapshots text[], leaving text[], owners text[], kept integer
) RETURNS TABLE (place integer, outcome text, record bytea, revision bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    latest bigint;
    before bigint;
    found_record bytea;
    deleted boolean := false;
BEGIN
    -- Whoever has this row writes, until the commit: no revision becomes visible before a smaller one.
    SELECT l.revision INTO latest FROM rock_latest l FOR UPDATE;
    before := latest;
    FOR i IN 1 .. cardinality(ids) LOOP
        -- A server that was declared dead changes nothing any more, also where nobody has taken over yet.
        IF owners[i] LIKE '%:_%' AND NOT EXISTS (SELECT FROM rock_replicas r WHERE r.id = owners[i]) THEN
            place := i; outcome := 'fenced'; record := NULL;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF expected[i] = 0 THEN
            SELECT s.record, s.revision INTO found_record, revision FROM rock_sandboxes s
                WHERE s.tenant = tenants[i] AND s.key = keys[i];
            IF NOT FOUND THEN
                SELECT s.record, s.revision INTO found_record, revision FROM rock_sandboxes s WHERE s.id = ids[i];
            END IF;
            IF FOUND THEN
                place := i; outcome := 'held'; record := found_record;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        IF snapshots[i] != '' AND states[i] != 'DELETED' AND NOT EXISTS (
            -- A new one may start from what is offered; one that builds upon it already, from what is kept.
            SELECT FROM rock_snapshots s WHERE s.id = snapshots[i]
                AND s.state != 'COLLECTED' AND (expected[i] != 0 OR s.state != 'DELETED')
        ) THEN
            place := i; outcome := 'collected'; record := NULL;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF expected[i] = 0 THEN
            latest := latest + 1;
            INSERT INTO rock_sandboxes VALUES (ids[i], tenants[i], keys[i], states[i], environments[i], latest,
                tokens[i], records[i], snapshots[i], leaving[i]);
            INSERT INTO rock_labels SELECT substring(labels[i] FROM 1 + 32 * n FOR 32), ids[i]
                FROM generate_series(0, octet_length(labels[i]) / 32 - 1) n;
        ELSE
            UPDATE rock_sandboxes s
                SET key = keys[i], state = states[i], revision = latest + 1, token = tokens[i], record = records[i],
                    snapshot_id = snapshots[i], leaving_snapshot_id = leaving[i]
                WHERE s.id = ids[i] AND s.revision = expected[i];
            IF NOT FOUND THEN
                -- Ours all the same where the answer to this very write was lost on its way.
                SELECT s.revision INTO revision FROM rock_sandboxes s WHERE s.id = ids[i] AND s.token = tokens[i];
                IF FOUND THEN outcome := 'stored'; ELSE outcome := 'stale'; END IF;
                place := i; record := NULL;
                RETURN NEXT;
                CONTINUE;
            END IF;
            latest := latest + 1;
            deleted := deleted OR states[i] = 'DELETED';
        END IF;
        place := i; outcome := 'stored'; record := NULL; revision := latest;
        RETURN NEXT;
    END LOOP;
    IF latest > before THEN
        UPDATE rock_latest l SET revision = latest;
        PERFORM pg_notify('{CHANGES}', '');
    END IF;
    IF deleted THEN
        DELETE FROM rock_sandboxes s WHERE s.state = 'DELETED' AND s.revision <= (
            SELECT d.revision FROM rock_sandboxes d WHERE d.state = 'DELETED' ORDER BY d.revision DESC LIMIT 1 OFFSET kept
        );
    END IF;
END
$$
"""

_PLACE = f"""
CREATE FUNCTION rock_place(
    wanted_id text, wanted_tenant text, wanted_millicpus bigint, wanted_memory bigint,
    most_boxes bigint, most_millicpus bigint, most_memory bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    boxes bigint;
    millicpus_held bigint;
    memory_held bigint;
BEGIN
    IF EXISTS (SELECT FROM rock_places p WHERE p.sandbox_id = wanted_id) THEN
        RETURN true;
    END IF;
    IF num_nonnulls(most_boxes, most_millicpus, most_memory) > 0 THEN
        -- One at a time for each tenant, until the commit: the sum is of all who hold a place.
        PERFORM pg_advisory_xact_lock({_LOCK}, hashtext(wanted_tenant));
        SELECT count(*), coalesce(sum(p.millicpus), 0), coalesce(sum(p.memory_bytes), 0)
            INTO boxes, millicpus_held, memory_held FROM rock_places p WHERE p.tenant = wanted_tenant;
        IF boxes + 1 > most_boxes OR millicpus_held + wanted_millicpus > most_millicpus
            OR memory_held + wanted_memory > most_memory
        THEN
            RETURN false;
        END IF;
    END IF;
    -- A sandbox that ended meanwhile holds none: nothing would give it back.
    INSERT INTO rock_places SELECT s.id, wanted_tenant, wanted_millicpus, wanted_memory FROM rock_sandboxes s
        WHERE s.id = wanted_id AND s.state NOT IN ('DELETED', 'FAILED') FOR SHARE
        ON CONFLICT DO NOTHING;
    RETURN true;
END
$$
"""
_GIVE_BACK = f"""
CREATE FUNCTION rock_give_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM rock_places p WHERE p.sandbox_id = NEW.id;
    IF FOUND THEN
        PERFORM pg_notify('{PLACES}', '');
    END IF;
    RETURN NULL;
END
$$
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE rock_sandboxes (
            id text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, key bytea, state text COLLATE "C" NOT NULL,
            environment bytea NOT NULL, revision bigint NOT NULL, token bytea NOT NULL, record bytea NOT NULL,
            snapshot_id text COLLATE "C" NOT NULL, leaving_snapshot_id text COLLATE "C" NOT NULL
        )""",
        *(
            f"CREATE INDEX rock_sandboxes_{column} ON rock_sandboxes ({column}) "
            f"WHERE {column} != '' AND state != 'DELETED'"
            for column in ("snapshot_id", "leaving_snapshot_id")
        ),
        "CREATE UNIQUE INDEX rock_sandboxes_key ON rock_sandboxes (tenant, key)",
        "CREATE INDEX rock_sandboxes_tenant ON rock_sandboxes (tenant, id)",
        "CREATE INDEX rock_sandboxes_state ON rock_sandboxes (state, revision)",
        "CREATE INDEX rock_sandboxes_environment ON rock_sandboxes (environment, id)",
        "CREATE UNIQUE INDEX rock_sandboxes_revision ON rock_sandboxes (revision)",
        """CREATE TABLE rock_labels (
            label bytea NOT NULL, sandbox_id text COLLATE "C" NOT NULL REFERENCES rock_sandboxes (id) ON DELETE CASCADE,
            PRIMARY KEY (label, sandbox_id)
        )""",
        "CREATE INDEX rock_labels_sandbox ON rock_labels (sandbox_id)",
        """CREATE TABLE rock_snapshots (
            id text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, key bytea, state text COLLATE "C" NOT NULL,
            parent text COLLATE "C" NOT NULL, sandbox_id text COLLATE "C" NOT NULL, record bytea NOT NULL
        )""",
        "CREATE UNIQUE INDEX rock_snapshots_key ON rock_snapshots (tenant, key)",
        "CREATE INDEX rock_snapshots_tenant ON rock_snapshots (tenant, id)",
        "CREATE INDEX rock_snapshots_sandbox ON rock_snapshots (sandbox_id, id)",
        "CREATE INDEX rock_snapshots_state ON rock_snapshots (state, id)",
        "CREATE INDEX rock_snapshots_parent ON rock_snapshots (parent) WHERE state != 'COLLECTED'",
        "CREATE TABLE rock_latest (revision bigint NOT NULL)",
        "INSERT INTO rock_latest VALUES (0)",
        _WRITE,
        """CREATE TABLE rock_replicas (
            id text COLLATE "C" PRIMARY KEY, node text COLLATE "C" NOT NULL, address text NOT NULL,
            lease_expires_at timestamptz NOT NULL, draining boolean NOT NULL DEFAULT false
        )""",
        "CREATE TABLE rock_secret (secret bytea NOT NULL)",
        "INSERT INTO rock_secret SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))",
    ),
    ("""ALTER TABLE rock_replicas ADD COLUMN folder text COLLATE "C" NOT NULL DEFAULT ''""",),
    (
        """ALTER TABLE rock_replicas ADD COLUMN environments text COLLATE "C" NOT NULL DEFAULT ''""",
        """CREATE TABLE rock_claims (key bytea PRIMARY KEY, environments text COLLATE "C" NOT NULL)""",
        "CREATE INDEX rock_claims_environments ON rock_claims (environments)",
    ),
    (
        """CREATE TABLE rock_places (
            sandbox_id text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, millicpus bigint NOT NULL,
            memory_bytes bigint NOT NULL
        )""",
        "CREATE INDEX rock_places_tenant ON rock_places (tenant)",
        _PLACE,
        _GIVE_BACK,
        """CREATE TRIGGER rock_sandboxes_ended AFTER UPDATE ON rock_sandboxes FOR EACH ROW
            WHEN (NEW.state IN ('DELETED', 'FAILED') AND OLD.state IS DISTINCT FROM NEW.state)
            EXECUTE FUNCTION rock_give_back()""",
        """CREATE TABLE rock_quotas (tenant text COLLATE "C" PRIMARY KEY, quota bytea NOT NULL)""",
        "ALTER TABLE rock_secret ADD COLUMN authority_key bytea, ADD COLUMN authority bytea",
    ),
    (
        """CREATE TABLE rock_envs (
            name text COLLATE "C" PRIMARY KEY, digest text COLLATE "C" NOT NULL, record bytea NOT NULL, tasks bytea NOT NULL
        )""",
    ),
    ("""ALTER TABLE rock_replicas ADD COLUMN sites text[] COLLATE "C" NOT NULL DEFAULT '{}'""",),
    (
        """CREATE TABLE rock_images (
            tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, node text COLLATE "C" NOT NULL,
            image_id text COLLATE "C" NOT NULL, context_digest text COLLATE "C" NOT NULL, record bytea NOT NULL
        )""",
        "CREATE UNIQUE INDEX rock_images_name ON rock_images (tenant, name) WHERE name != ''",
        "CREATE UNIQUE INDEX rock_images_nameless ON rock_images (tenant, node, image_id) WHERE name = ''",
        "CREATE INDEX rock_images_image ON rock_images (image_id)",
        "CREATE INDEX rock_images_node ON rock_images (node)",
        "CREATE INDEX rock_images_context ON rock_images (tenant, context_digest)",
        "CREATE TABLE rock_pools (key bytea PRIMARY KEY, record bytea NOT NULL)",
    ),
    ("ALTER TABLE rock_snapshots ADD COLUMN revision bigint NOT NULL DEFAULT 0",),
)
"""The statements that lead from one version to the next. Append only: databases in use have run the earlier ones."""


async def migrate(connection: Any, where: str) -> None:
    """Bring the tables up to date, one server at a time. Raise `InvalidArgument` for those of a newer server."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        # Asked for first: CREATE ... IF NOT EXISTS would need the right to create also where nothing is to be done.
        if await connection.fetchval("SELECT to_regclass('rock_version')") is None:
            await connection.execute("CREATE TABLE rock_version (version integer NOT NULL)")
            await connection.execute("INSERT INTO rock_version VALUES (0)")
        version = await connection.fetchval("SELECT version FROM rock_version")
        if version > len(MIGRATIONS):
            raise InvalidArgument(
                f"{where} has version {version}, this server knows up to {len(MIGRATIONS)}. Use the newer server that "
                "wrote it, or another database."
            )
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                await connection.execute(statement)
        if version < len(MIGRATIONS):
            await connection.execute("UPDATE rock_version SET version = $1", len(MIGRATIONS))


def digest(*words: str) -> bytes:
    """Return 32 bytes that stand for these words, and for no others."""
    return hashlib.sha256("".join(f"{len(word)}:{word}" for word in words).encode()).digest()


def find_sql(query: Query) -> tuple[str, list[object]]:
    """Return the statement for a query and its values; every filter of it has an index to go by."""
    if "\0" in query.after_id:
        raise InvalidArgument(f"bad page token {query.after_id!r}: expected the one of the page before")
    conditions: list[str] = []
    values: list[object] = []

    def need(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.replace("?", f"${len(values)}"))

    if query.after_id or not query.after_revision:
        need("id > ?", query.after_id)
    if query.after_revision:
        need("revision > ?", query.after_revision)
    if query.tenant is not None:
        need("tenant = ?", query.tenant)
    if query.states != frozenset(SandboxState):
        need("state = ANY (?::text[])", sorted(query.states))
    if query.environment:
        need("environment = ?", digest(query.environment))
    for name, value in sorted(query.labels.items()):
        need("id IN (SELECT sandbox_id FROM rock_labels WHERE label = ?)", digest(name, value))
    order = "revision" if query.after_revision else "id"
    values.append(query.limit)
    return (
        f"SELECT record, revision FROM rock_sandboxes WHERE {' AND '.join(conditions)} "
        f"ORDER BY {order} LIMIT ${len(values)}",
        values,
    )
