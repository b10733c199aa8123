# Reads and checks configuration, catalogue and claims before any job; nothing below this line sees raw settings.
from rankcollapse import flow

CONFIG, CATALOGUE, PLACES = flow.start(config, workflow)


onstart:
    if workflow.is_main_process:
        flow.clear_failures(PLACES)


onsuccess:
    if workflow.is_main_process:
        flow.report(PLACES)


onerror:
    if workflow.is_main_process:
        flow.report_failures(PLACES)
