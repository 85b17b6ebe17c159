"""The only room that speaks to PostgreSQL: statements, migrations, connections. One statement a file in `sql/`."""
