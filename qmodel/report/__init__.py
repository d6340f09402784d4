"""Results as text: pages for people, JSON and CSV for programs."""

from qmodel.report.blocks import Block, Bullets, Column, Facts, Heading, Lines, TextTable, render_text
from qmodel.report.machine_text import TABLE_COLUMNS, csv_text, json_text, plain
from qmodel.report.number_text import (
    decimal_text,
    metric_text,
    money_text,
    month_text,
    percent_text,
    seconds_text,
    usd_text,
)
from qmodel.report.pages import capacity_page, evaluation_page, no_plan_lines, plan_page
from qmodel.report.row_tables import gpus_by_type, marginal_table
from qmodel.report.simulation_pages import check_blocks, simulation_columns, simulation_page

__all__ = [
    "TABLE_COLUMNS",
    "Block",
    "Bullets",
    "Column",
    "Facts",
    "Heading",
    "Lines",
    "TextTable",
    "capacity_page",
    "check_blocks",
    "csv_text",
    "decimal_text",
    "evaluation_page",
    "gpus_by_type",
    "json_text",
    "marginal_table",
    "metric_text",
    "money_text",
    "month_text",
    "no_plan_lines",
    "percent_text",
    "plain",
    "plan_page",
    "render_text",
    "seconds_text",
    "simulation_columns",
    "simulation_page",
    "usd_text",
]
