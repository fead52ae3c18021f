//! Prints the schema that all migrations make together; `cargo xtask schema` writes it to `schema.sql`.

fn main() {
    match quell_store_sqlite::dump_schema() {
        Ok(schema) => print!("{schema}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
