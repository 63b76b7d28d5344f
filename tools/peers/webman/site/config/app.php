<?php
// The few settings the framework reads on its way to the controller.
return [
    'debug' => false,
    'error_reporting' => E_ALL,
    'runtime_path' => getenv('WORK'),
    'public_path' => getenv('WORK'),
    'controller_suffix' => 'Controller',
    'controller_reuse' => true,
];
