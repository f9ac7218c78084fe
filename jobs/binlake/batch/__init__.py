"""What a batch's log means for each table. Pure: staged mutations and statements in, steps out."""
