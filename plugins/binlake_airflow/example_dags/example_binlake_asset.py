"""A DAG that runs when a mirrored table has changed: each event has the batch, its position, and the counts."""

from airflow.sdk import dag, task

from binlake_airflow.operators import table_asset

ORDERS = table_asset("example_shop", "shop.orders")


@dag(schedule=[ORDERS], tags={"example", "binlake"})
def example_binlake_asset():
    """Print what each asset event says about the mirrored table."""

    @task
    def tell(triggering_asset_events):
        for event in triggering_asset_events[ORDERS]:
            print(event.extra)  # {'batch': 7, 'inserted': 3, 'updated': 1, 'deleted': 0, 'position': …}

    tell()


example_binlake_asset()
