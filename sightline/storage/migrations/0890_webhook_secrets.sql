-- compatible_from: 0880
-- Every secret of a webhook endpoint signs for 24 h after the rotation that replaced it. A server knew the last rotation only, so
-- that a second one within 24 h took the secret of a receiver away. Earlier servers go on to sign with two secrets.
ALTER TABLE webhook_endpoint ADD COLUMN rotations_ms bigint[] NOT NULL DEFAULT '{}';
UPDATE webhook_endpoint SET rotations_ms = ARRAY[rotated_at_ms] WHERE rotated_at_ms IS NOT NULL;

-- In the database, so that a rotation by an earlier server counts too. Newest first.
CREATE FUNCTION webhook_rotation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.rotations_ms := (ARRAY[NEW.rotated_at_ms] || OLD.rotations_ms)[1:3];
  RETURN NEW;
END $$;
CREATE TRIGGER webhook_rotation BEFORE UPDATE OF generation ON webhook_endpoint FOR EACH ROW
  WHEN (NEW.generation = OLD.generation + 1) EXECUTE FUNCTION webhook_rotation();
