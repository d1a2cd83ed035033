-- compatible_from: 0590
-- Invoices to consumers about closed months. Rows are only added, and the numbers of a year have no gaps.
CREATE TABLE invoice (
  year integer NOT NULL,
  number integer NOT NULL CHECK (number > 0),
  workspace_id uuid NOT NULL,
  month text NOT NULL CHECK (month ~ '^[0-9]{4}-[0-9]{2}$'),
  issued_at_ms bigint NOT NULL,
  sessions bigint NOT NULL,
  charged numeric(78) NOT NULL CHECK (charged > 0),
  refunded numeric(78) NOT NULL CHECK (refunded >= 0),
  PRIMARY KEY (year, number),
  UNIQUE (workspace_id, month)
);
CREATE FUNCTION invoice_follows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.number <> 1 + coalesce((SELECT max(number) FROM invoice WHERE year = NEW.year), 0) THEN
    RAISE EXCEPTION 'the number of an invoice follows the one before' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER invoice_follows BEFORE INSERT ON invoice FOR EACH ROW EXECUTE FUNCTION invoice_follows();
CREATE FUNCTION refuse_invoice_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'invoices are append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER invoice_is_kept BEFORE UPDATE OR DELETE ON invoice
  FOR EACH ROW EXECUTE FUNCTION refuse_invoice_change();
CREATE TRIGGER invoice_is_not_truncated BEFORE TRUNCATE ON invoice
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_invoice_change();
